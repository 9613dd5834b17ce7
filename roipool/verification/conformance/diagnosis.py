"""From wrong answers to the rules that they follow, each shown by the smallest call."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roipool.verification.differential.case import Case
from roipool.verification.differential.checking import Finding
from roipool.verification.differential.oracle import Oracle
from roipool.verification.differential.shrinking import shrink

from .calls import in_common
from .examining import Examiner, Outcome
from .rules import RULES, Rule

TRIED = 16  # wrong calls on which rules are tried; as many right ones
TRIED_IN_PAIRS = 4
SECONDS = 5.0  # that making one call small may take


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What an implementation does wrong.

    Attributes
    ----------
    subject : str
        "oracle", or the kind of a misbehaviour.
    result : str
        Which result is wrong.
    rules : tuple of Rule
        The rules that explain it; several at once where it takes two, none where none does.
    alternatives : tuple of Rule
        Other rules that explain as many of the calls.
    explained, wrong : int
        How many of the wrong calls that were tried follow the rules, and how many were tried.
    contradicted : int
        How many right calls do not follow the rules.
    calls : tuple of str
        Names of the wrong calls.
    kinds : tuple of str
        What all those calls have in common.
    smallest : Case
        The smallest call found that is wrong in this way.
    finding : Finding
        How it is.
    name : str
        The call that it was made of.
    """

    subject: str
    result: str
    rules: tuple[Rule, ...]
    alternatives: tuple[Rule, ...]
    explained: int
    wrong: int
    contradicted: int
    calls: tuple[str, ...]
    kinds: tuple[str, ...]
    smallest: Case
    finding: Finding
    name: str

    @property
    def words(self) -> str:
        """What the implementation does, in words."""
        if self.subject != "oracle":
            return str(self.finding.comparison.problem)
        if self.rules:
            return ", and ".join(rule.words for rule in self.rules)
        return "follows no rule that is known here"


def diagnose(examiner: Examiner, outcomes: Sequence[Outcome]) -> list[Diagnosis]:
    """Return what is wrong, the most frequent first.

    Parameters
    ----------
    examiner : Examiner
        Made the calls, and makes smaller ones.
    outcomes : sequence of Outcome
        Of all calls.

    Returns
    -------
    list of Diagnosis
    """
    right = [outcome for outcome in outcomes if not outcome.failures and outcome.got]
    found = [
        *_misbehaviours(examiner, outcomes, right),
        *(
            diagnosis
            for result in ("pooled", "argmax", "gradient")
            for diagnosis in _wrong_numbers(examiner, outcomes, right, result)
        ),
    ]
    return sorted(found, key=lambda one: -len(one.calls))


def _misbehaviours(
    examiner: Examiner, outcomes: Sequence[Outcome], right: Sequence[Outcome]
) -> Iterator[Diagnosis]:
    """Yield what is no number, by kind and message."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        for finding in outcome.failures:
            if finding.subject != "oracle":
                text = re.sub(r"[\d.]+", "#", str(finding.comparison.problem))
                groups.setdefault((finding.subject, finding.what, text), []).append(outcome)
    for (subject, result, _), group in groups.items():
        yield _described(examiner, group, right, subject, result)


def _wrong_numbers(
    examiner: Examiner, outcomes: Sequence[Outcome], right: Sequence[Outcome], result: str
) -> Iterator[Diagnosis]:
    """Yield the rules that wrong numbers follow: that which explains most, then of what is left."""
    wrong = [outcome for outcome in outcomes if _is_wrong(outcome, result)]
    fine = [outcome for outcome in right if result in outcome.got]
    varied = [(rule, oracle) for rule in RULES if (oracle := rule.vary(examiner.oracle))]
    while wrong:
        tried = _small(wrong, TRIED)
        explained = {
            rule: [one for one in tried if examiner.follows(one, result, oracle)]
            for rule, oracle in varied
        }
        most = max((len(some) for some in explained.values()), default=0)
        if most:
            best = [(rule, oracle) for rule, oracle in varied if len(explained[rule]) == most]
            chosen, *others = _fewest_contradictions(examiner, best, fine, result)
            (rule, oracle), against = chosen
            same = [one for one in wrong if examiner.follows(one, result, oracle)]
            ties = tuple(other for (other, _), count in others if count == against)
            yield _described(
                examiner, same, fine, "oracle", result, (rule,), oracle, ties, against,
                (most, len(tried)),
            )  # fmt: skip
        elif (pair := _pair(examiner, tried, result, varied)) is not None:
            rules, oracle = pair
            same = [one for one in wrong if examiner.follows(one, result, oracle)]
            yield _described(examiner, same, fine, "oracle", result, rules, oracle,
                             counts=(len(same), len(wrong)))  # fmt: skip
        else:
            same = wrong
            yield _described(examiner, same, fine, "oracle", result, counts=(0, len(tried)))
        wrong = [one for one in wrong if one not in same]


def _fewest_contradictions(
    examiner: Examiner,
    rules: Sequence[tuple[Rule, Oracle]],
    right: Sequence[Outcome],
    result: str,
) -> list[tuple[tuple[Rule, Oracle], int]]:
    """Return rules with the number of right calls that do not follow them, the fewest first."""
    tried = _small(right, TRIED)
    counts = [
        (one, sum(not examiner.follows(outcome, result, one[1]) for outcome in tried))
        for one in rules
    ]
    return sorted(counts, key=lambda one: one[1])


def _pair(
    examiner: Examiner,
    wrong: Sequence[Outcome],
    result: str,
    varied: Sequence[tuple[Rule, Oracle]],
) -> tuple[tuple[Rule, ...], Oracle] | None:
    """Return two rules that explain the smallest calls together, if two do."""
    few = _small(wrong, TRIED_IN_PAIRS)
    for (first, oracle), (second, _) in itertools.combinations(varied, 2):
        both = second.vary(oracle)
        if both is not None and all(examiner.follows(one, result, both) for one in few):
            return (first, second), both
    return None


def _is_wrong(outcome: Outcome, result: str) -> bool:
    return any(
        finding.subject == "oracle" and finding.what.split()[0] == result
        for finding in outcome.failures
    )


def _small(outcomes: Sequence[Outcome], count: int) -> list[Outcome]:
    """Return the calls that the oracle is fastest with."""
    return sorted(outcomes, key=lambda one: one.case.grad.size + one.case.maps.size)[:count]


def _described(
    examiner: Examiner,
    same: Sequence[Outcome],
    right: Sequence[Outcome],
    subject: str,
    result: str,
    rules: tuple[Rule, ...] = (),
    oracle: Oracle | None = None,
    alternatives: tuple[Rule, ...] = (),
    contradicted: int = 0,
    counts: tuple[int, int] = (0, 0),
) -> Diagnosis:
    """Make the smallest of some calls smaller, and say what is wrong with them."""
    first = _small(same, 1)[0]

    def failure_of(case: Case) -> Finding | None:
        own = examiner.plan.as_called(case)
        if own.dtype != examiner.plan.dtype or not examiner.plan.includes(own):
            return None
        outcome = examiner.examine(first.name, own)
        if oracle is not None and not examiner.follows(outcome, result, oracle):
            return None
        return _finding(outcome, subject, result)

    found = _finding(first, subject, result)
    assert found is not None
    smallest, finding = shrink(first.case, found, failure_of, SECONDS)
    smallest = examiner.plan.as_called(smallest)
    return Diagnosis(
        subject, result, rules, alternatives, *counts, contradicted,
        tuple(outcome.name for outcome in same),
        tuple(in_common([one.case for one in same], [one.case for one in right])),
        smallest, finding, first.name,
    )  # fmt: skip


def _finding(outcome: Outcome, subject: str, result: str) -> Finding | None:
    for finding in outcome.failures:
        if finding.subject == subject and finding.what.split()[0] == result:
            return finding
    return None
