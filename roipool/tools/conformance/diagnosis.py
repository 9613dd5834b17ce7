"""Finds the rules that wrong results follow, and the smallest call that shows each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from roipool.systems import Oracle
from roipool.systems.case import Case
from roipool.tools.random_calls.shrink import shrink
from roipool.verification.check import Finding

from .cases import first_kind, in_common
from .examine import RESULTS, Examiner, Outcome
from .fitting import fitted_shifts
from .rules import RULES, Rule

TRIED = 16  # wrong calls, and right calls, on which rules are tried
TRIED_FIRST = 4  # the first of them: a rule must explain one to be tried on the others
TRIED_IN_PAIRS = 3  # wrong calls on which pairs of rules are tried
MANY = 150  # calls that distinguish rules which are equal on the first ones
FEW = 1 / 4  # the fraction of wrong calls that a doubtful rule must explain
SECONDS = 3.0  # time limit for shrinking one call


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """One thing that an implementation does wrong."""

    subject: str  # "oracle" for wrong numbers, or the kind of a misbehaviour
    result: str  # the wrong result
    rules: tuple[Rule, ...]  # the rules that explain it: one, two together, or none
    alternatives: tuple[Rule, ...]  # other rules that explain as many of the calls
    # Wrong calls that were tried: those that follow the rules, and all.
    explained: int
    wrong: int
    contradicted: int  # right calls that do not follow the rules
    calls: tuple[str, ...]  # names of the wrong calls
    kinds: tuple[str, ...]  # the kinds that all these calls have in common
    smallest: Case  # the smallest wrong call found
    finding: Finding  # the failed comparison of the smallest call
    name: str  # the call from which the smallest was derived
    also: tuple[str, ...] = ()  # other results that are wrong for the same reason

    @property
    def results(self) -> str:
        """The wrong results, in words."""
        return ", ".join(name.replace("_", " ") for name in (self.result, *self.also))

    @property
    def words(self) -> str:
        """A description of what the implementation does."""
        if self.subject != "oracle":
            return str(self.finding.comparison.problem)
        if self.rules:
            return ", and ".join(rule.words for rule in self.rules)
        return "matches no known variation"


def diagnose(
    examiner: Examiner, outcomes: Sequence[Outcome], seconds: float = SECONDS
) -> list[Diagnosis]:
    """Return diagnoses of all failures, the most frequent first.

    Parameters
    ----------
    seconds : float
        Time limit for shrinking one call.
    """
    right = [outcome for outcome in outcomes if not outcome.failures and outcome.got]
    diagnoses = [
        *_misbehaviours(examiner, outcomes, right, seconds),
        *(
            diagnosis
            for result in RESULTS
            for diagnosis in _wrong_numbers(examiner, outcomes, right, result, seconds)
        ),
    ]
    return sorted(_merged(diagnoses), key=lambda diagnosis: -len(diagnosis.calls))


def _merged(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Merge diagnoses with the same cause into the first of them."""
    merged: list[Diagnosis] = []
    for new in diagnoses:
        for k, known in enumerate(merged):
            if _same_cause(known, new):
                calls = tuple(dict.fromkeys((*known.calls, *new.calls)))
                kinds = tuple(kind for kind in known.kinds if kind in new.kinds)
                also = (*known.also, *(() if new.result in known.results else (new.result,)))
                merged[k] = replace(known, calls=calls, kinds=kinds, also=also)
                break
        else:
            merged.append(new)
    return merged


def _same_cause(first: Diagnosis, second: Diagnosis) -> bool:
    """Return whether the second diagnosis adds nothing to the first."""
    if "oracle" not in (first.subject, second.subject) or first.subject != second.subject:
        return False
    if second.result.startswith("argmax") and not second.rules:  # a consequence of wrong maxima
        return first.result == "pooled" and set(second.calls) <= set(first.calls)
    names = {rule.name for rule in (*second.rules, *second.alternatives)}
    return {rule.name for rule in first.rules} <= names and bool(first.rules) == bool(second.rules)


def _misbehaviours(
    examiner: Examiner,
    outcomes: Sequence[Outcome],
    right: Sequence[Outcome],
    seconds: float,
) -> Iterator[Diagnosis]:
    """Yield diagnoses of failures other than wrong numbers, grouped by kind and message."""
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
    """Yield the rules that wrong numbers follow.

    The rule that explains most calls comes first, then the rule that explains most of the rest.
    """
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
            same = [outcome for outcome in left if examiner.follows(outcome, result, oracle)]
            same += [
                outcome
                for outcome in left
                if outcome not in same and examiner.follows(outcome, result, oracle, rounded=True)
            ]
            groups.append((explanation, same))
        else:
            kind = first_kind(left[0].case)
            same = [outcome for outcome in left if first_kind(outcome.case) == kind]
            unknown += same
        left = [outcome for outcome in left if outcome not in same]
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
    """Discard rules that some calls follow by chance; return the others, and unexplained calls.

    A rule that explains few calls counts only if no right call contradicts it and no other rule
    explains them as well. A rule that explains fewer calls than remain unexplained is discarded.
    """
    kept, chance = [], list(unknown)
    for explanation, same in groups:
        is_doubtful = explanation.contradicted or explanation.alternatives
        if is_doubtful and len(same) < FEW * wrong:
            chance += same
        else:
            kept.append((explanation, same))
    sure = [group for group in kept if len(group[1]) >= len(chance)]
    chance += [outcome for group in kept if group not in sure for outcome in group[1]]
    return sure, chance


class _Explanation(NamedTuple):
    """Rules that explain wrong calls, their oracle, and further attributes of `Diagnosis`."""

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
    """Return the rule that explains most of the wrong calls and contradicts the fewest right calls.

    If no rule of the table explains all wrong calls, shifts are fitted. If no rule explains any,
    pairs of rules are tried, given `with_pairs`.
    """

    def follow(oracle: Oracle, outcomes: Sequence[Outcome]) -> int:
        return sum(examiner.follows(outcome, result, oracle) for outcome in outcomes)

    tried, fine = _small(wrong, TRIED), _small(right, TRIED)
    few = [(rule, oracle) for rule, oracle in varied if follow(oracle, tried[:TRIED_FIRST])]
    if result != "argmax" and not any(follow(oracle, tried) == len(tried) for _, oracle in few):
        few += fitted_shifts(examiner, tried, result)
    if not few:
        rules, oracle = _pair(examiner, tried, result, varied) if with_pairs else ((), None)
        return _Explanation(rules, oracle, (), len(tried) if rules else 0, len(tried))
    for source, count in ((wrong, TRIED), (right, TRIED), (wrong, MANY), (right, MANY)):
        counts = [follow(oracle, _small(source, count)) for _, oracle in few]
        few = [entry for entry, number in zip(few, counts, strict=True) if number == max(counts)]
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
    """Return two rules that together explain the smallest calls, if there are such rules."""
    few = _small(wrong, TRIED_IN_PAIRS)
    effective = [entry for entry in varied if _changes(examiner, few[0], result, entry[1])]
    for (first, oracle), (second, _) in itertools.combinations(effective, 2):
        both = second.vary(oracle)
        if both is not None and all(examiner.follows(outcome, result, both) for outcome in few):
            return (first, second), both
    return (), None


def _changes(examiner: Examiner, outcome: Outcome, result: str, oracle: Oracle) -> bool:
    """Return whether an oracle's result of a call differs from the right one."""
    try:
        right, other = (
            examiner.expected(outcome, outcome.case, either)[result]
            for either in (examiner.oracle, oracle)
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
    """Return the smallest calls, on which the oracle is fastest."""

    def size(outcome: Outcome) -> int:
        return outcome.case.grad.size + outcome.case.maps.size

    return sorted(outcomes, key=size)[:count]


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
    """Shrink the smallest of some wrong calls, and make the diagnosis.

    The shrunk call still follows the explanation or, without one, none of the `known` oracles.
    """
    first, oracle = _small(same, 1)[0], explanation.oracle

    def failure_of(case: Case) -> Finding | None:
        own = examiner.plan.as_called(case)
        if own.dtype != examiner.plan.dtype or not examiner.plan.includes(own):
            return None
        outcome = examiner.examine(first.name, own)
        failure = _finding(outcome, subject, result)
        if failure is None or (oracle and not examiner.follows(outcome, result, oracle)):
            return None
        if not oracle and any(examiner.follows(outcome, result, other) for other in known):
            return None
        return failure

    failure = _finding(first, subject, result)
    assert failure is not None
    smallest, finding = shrink(first.case, failure, failure_of, seconds)
    return Diagnosis(
        subject,
        result,
        explanation.rules,
        explanation.alternatives,
        explanation.explained,
        explanation.wrong,
        explanation.contradicted,
        tuple(outcome.name for outcome in same),
        tuple(in_common([outcome.case for outcome in same], [outcome.case for outcome in right])),
        examiner.plan.as_called(smallest),
        finding,
        first.name,
    )


def _finding(outcome: Outcome, subject: str, result: str) -> Finding | None:
    for finding in outcome.failures:
        if finding.subject == subject and finding.what.split()[0] == result:
            return finding
    return None
