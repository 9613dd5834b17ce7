"""From wrong answers to the rules that they follow, each shown by the smallest call."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from roipool.systems import Oracle
from roipool.tools.random_calls.shrink import shrink
from roipool.verification.case import Case
from roipool.verification.check import Finding

from .cases import first_kind, in_common
from .examine import RESULTS, Examiner, Outcome
from .fitting import fitted_shifts
from .rules import RULES, Rule

TRIED = 16  # wrong calls on which rules are tried; as many right ones
TRIED_FIRST = 4  # of them on which a rule must explain one, or it is not tried further
TRIED_IN_PAIRS = 3
MANY = 150  # calls on which rules are tried that are equal on those
FEW = 1 / 4  # of the wrong calls: so many a doubtful rule must explain
SECONDS = 3.0  # that making one call small may take


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
    also : tuple of str
        Other results that are wrong for the same reason.
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
    also: tuple[str, ...] = ()

    @property
    def results(self) -> str:
        """The wrong results, in words."""
        return ", ".join(name.replace("_", " ") for name in (self.result, *self.also))

    @property
    def words(self) -> str:
        """What the implementation does, in words."""
        if self.subject != "oracle":
            return str(self.finding.comparison.problem)
        if self.rules:
            return ", and ".join(rule.words for rule in self.rules)
        return "matches no known variation"


def diagnose(
    examiner: Examiner, outcomes: Sequence[Outcome], seconds: float = SECONDS
) -> list[Diagnosis]:
    """Return what is wrong, the most frequent first.

    Parameters
    ----------
    examiner : Examiner
        Made the calls, and makes smaller ones.
    outcomes : sequence of Outcome
        Of all calls.
    seconds : float
        That making one call small may take.

    Returns
    -------
    list of Diagnosis
    """
    right = [outcome for outcome in outcomes if not outcome.failures and outcome.got]
    found = [
        *_misbehaviours(examiner, outcomes, right, seconds),
        *(
            diagnosis
            for result in RESULTS
            for diagnosis in _wrong_numbers(examiner, outcomes, right, result, seconds)
        ),
    ]
    return sorted(_merged(found), key=lambda one: -len(one.calls))


def _merged(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Return diagnoses of which those with the same cause are one, told by its first result."""
    merged: list[Diagnosis] = []
    for one in found:
        for k, other in enumerate(merged):
            if _same_cause(other, one):
                calls = tuple(dict.fromkeys((*other.calls, *one.calls)))
                kinds = tuple(kind for kind in other.kinds if kind in one.kinds)
                also = (*other.also, *(() if one.result in other.results else (one.result,)))
                merged[k] = replace(other, calls=calls, kinds=kinds, also=also)
                break
        else:
            merged.append(one)
    return merged


def _same_cause(first: Diagnosis, second: Diagnosis) -> bool:
    """Return whether the second diagnosis says nothing that the first does not."""
    if "oracle" not in (first.subject, second.subject) or first.subject != second.subject:
        return False
    if second.result.startswith("argmax") and not second.rules:  # it is that of other maxima
        return first.result == "pooled" and set(second.calls) <= set(first.calls)
    names = {rule.name for rule in (*second.rules, *second.alternatives)}
    return {rule.name for rule in first.rules} <= names and bool(first.rules) == bool(second.rules)


def _misbehaviours(
    examiner: Examiner,
    outcomes: Sequence[Outcome],
    right: Sequence[Outcome],
    seconds: float,
) -> Iterator[Diagnosis]:
    """Yield what is no number, by kind and message."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        for finding in outcome.failures:
            if finding.subject != "oracle":
                text = re.sub(r"0x[0-9a-f]+|[\d.]+", "#", str(finding.comparison.problem))
                groups.setdefault((finding.subject, finding.what, text), []).append(outcome)
    for (subject, result, _), group in groups.items():
        yield _described(examiner, group, right, subject, result, _Explanation(), (), seconds)


def _wrong_numbers(
    examiner: Examiner,
    outcomes: Sequence[Outcome],
    right: Sequence[Outcome],
    result: str,
    seconds: float,
) -> Iterator[Diagnosis]:
    """Yield the rules that wrong numbers follow: that which explains most, then of what is left."""
    wrong = [outcome for outcome in outcomes if _is_wrong(outcome, result)]
    fine = [outcome for outcome in right if result in outcome.got]
    varied = [(rule, oracle) for rule in RULES if (oracle := rule.vary(examiner.oracle))]
    groups: list[_Group] = []
    unknown: list[Outcome] = []
    left = list(wrong)
    while left:
        explanation = _explanation(examiner, left, fine, result, varied, with_pairs=not unknown)
        if explanation.oracle is not None:
            oracle = explanation.oracle
            same = [one for one in left if examiner.follows(one, result, oracle)]
            same += [
                one
                for one in left
                if one not in same and examiner.follows(one, result, oracle, rounded=True)
            ]
            groups.append((explanation, same))
        else:
            kind = first_kind(left[0].case)
            same = [one for one in left if first_kind(one.case) == kind]
            unknown += same
        left = [one for one in left if one not in same]
    groups, unknown = _without_coincidences(groups, unknown, len(wrong))
    for explanation, same in groups:
        yield _described(examiner, same, fine, "oracle", result, explanation, (), seconds)
    if unknown:
        known = [explanation.oracle for explanation, _ in groups if explanation.oracle]
        nothing = _Explanation(wrong=len(unknown))
        yield _described(examiner, unknown, fine, "oracle", result, nothing, known, seconds)


def _without_coincidences(
    groups: list[_Group], unknown: list[Outcome], wrong: int
) -> tuple[list[_Group], list[Outcome]]:
    """Take away rules that some calls follow by chance, and return what is left unexplained, too.

    A rule of few calls counts only if no right call contradicts it and no other rule explains them
    as well; and of fewer calls than remain without one it is no explanation but a coincidence.
    """
    kept, chance = [], list(unknown)
    for explanation, same in groups:
        is_doubtful = explanation.contradicted or explanation.alternatives
        if is_doubtful and len(same) < FEW * wrong:
            chance += same
        else:
            kept.append((explanation, same))
    sure = [group for group in kept if len(group[1]) >= len(chance)]
    chance += [one for group in kept if group not in sure for one in group[1]]
    return sure, chance


class _Explanation(NamedTuple):
    """Rules that explain wrong calls, as an oracle, with what `Diagnosis` says of them."""

    rules: tuple[Rule, ...] = ()
    oracle: Oracle | None = None
    alternatives: tuple[Rule, ...] = ()
    explained: int = 0
    wrong: int = 0
    contradicted: int = 0


_Group: TypeAlias = tuple[_Explanation, list[Outcome]]


def _explanation(
    examiner: Examiner,
    wrong: Sequence[Outcome],
    right: Sequence[Outcome],
    result: str,
    varied: Sequence[tuple[Rule, Oracle]],
    *,
    with_pairs: bool,
) -> _Explanation:
    """Return what explains most of some wrong calls, and contradicts the fewest right ones.

    Where no rule of the table explains them all, shifts are fitted; where none explains any, pairs
    of rules are tried if `with_pairs`.
    """

    def follow(oracle: Oracle, some: Sequence[Outcome]) -> int:
        return sum(examiner.follows(one, result, oracle) for one in some)

    tried, fine = _small(wrong, TRIED), _small(right, TRIED)
    few = [one for one in varied if follow(one[1], tried[:TRIED_FIRST])]
    if result != "argmax" and not any(follow(oracle, tried) == len(tried) for _, oracle in few):
        few += fitted_shifts(examiner, tried, result)
    if not few:
        rules, oracle = _pair(examiner, tried, result, varied) if with_pairs else ((), None)
        return _Explanation(rules, oracle, (), len(tried) if rules else 0, len(tried))
    for source, count in ((wrong, TRIED), (right, TRIED), (wrong, MANY), (right, MANY)):
        counts = [follow(oracle, _small(source, count)) for _, oracle in few]
        few = [one for one, so_many in zip(few, counts, strict=True) if so_many == max(counts)]
        if len(few) == 1:
            break
    (rule, oracle), *others = few
    return _Explanation(
        (rule,),
        oracle,
        tuple(other for other, _ in others),
        follow(oracle, tried),
        len(tried),
        len(fine) - follow(oracle, fine),
    )


def _pair(
    examiner: Examiner,
    wrong: Sequence[Outcome],
    result: str,
    varied: Sequence[tuple[Rule, Oracle]],
) -> tuple[tuple[Rule, ...], Oracle | None]:
    """Return two rules that explain the smallest calls together, if two do."""
    few = _small(wrong, TRIED_IN_PAIRS)
    matter = [one for one in varied if _changes(examiner, few[0], result, one[1])]
    for (first, oracle), (second, _) in itertools.combinations(matter, 2):
        both = second.vary(oracle)
        if both is not None and all(examiner.follows(one, result, both) for one in few):
            return (first, second), both
    return (), None


def _changes(examiner: Examiner, outcome: Outcome, result: str, oracle: Oracle) -> bool:
    """Return whether an oracle answers a call otherwise than the right one."""
    try:
        right, other = (
            examiner.expected(outcome, outcome.case, one)[result]
            for one in (examiner.oracle, oracle)
        )
    except Exception:  # noqa: BLE001 - a changed rule may read beyond a map
        return False
    return not np.array_equal(right, other, equal_nan=True)


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
    explanation: _Explanation,
    known: Sequence[Oracle],
    seconds: float,
) -> Diagnosis:
    """Make the smallest of some calls smaller, and say what is wrong with them.

    It stays one that the explanation explains, or, where there is none, nothing that is `known`.
    """
    first, oracle = _small(same, 1)[0], explanation.oracle

    def failure_of(case: Case) -> Finding | None:
        own = examiner.plan.as_called(case)
        if own.dtype != examiner.plan.dtype or not examiner.plan.includes(own):
            return None
        outcome = examiner.examine(first.name, own)
        found = _finding(outcome, subject, result)
        if found is None or (oracle and not examiner.follows(outcome, result, oracle)):
            return None
        if not oracle and any(examiner.follows(outcome, result, other) for other in known):
            return None
        return found

    found = _finding(first, subject, result)
    assert found is not None
    smallest, finding = shrink(first.case, found, failure_of, seconds)
    return Diagnosis(
        subject,
        result,
        explanation.rules,
        explanation.alternatives,
        explanation.explained,
        explanation.wrong,
        explanation.contradicted,
        tuple(outcome.name for outcome in same),
        tuple(in_common([one.case for one in same], [one.case for one in right])),
        examiner.plan.as_called(smallest),
        finding,
        first.name,
    )


def _finding(outcome: Outcome, subject: str, result: str) -> Finding | None:
    for finding in outcome.failures:
        if finding.subject == subject and finding.what.split()[0] == result:
            return finding
    return None
