"""Fits the number of a rule to wrong results: the shift of boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np

from roipool.systems import Oracle

from .examine import Examiner, Outcome, only
from .mutants import shifted
from .rules import Rule

Family: TypeAlias = Callable[[float], Rule]
SHIFTS = np.arange(-32, 33) / 16  # the grid on which the fit starts
FITTED_TO = 3  # calls
STEPS = 26  # of the search between two points of the grid: to less than a millionth
GOLDEN = (5**0.5 - 1) / 2
CLOSE = 1e-3  # largest difference of a short number to the fitted one


def _family(words: str, *, in_pixels: bool, in_place: bool) -> Family:
    def rule(shift: float) -> Rule:
        number = _text(shift if in_place else -shift)
        vary = shifted(shift, in_pixels=in_pixels, in_place=in_place)
        return Rule(f"shift of {number}", words.format(number), vary)

    return rule


FAMILIES = (
    _family("shifts aligned boxes by {} cells; it is 0.5", in_pixels=False, in_place=True),
    _family(
        "shifts aligned boxes by {} pixels before they are scaled; it is 0.5 cells after",
        in_pixels=True,
        in_place=True,
    ),
    _family("moves boxes by {} cells, aligned or not", in_pixels=False, in_place=False),
    _family("moves boxes by {} pixels before they are scaled", in_pixels=True, in_place=False),
)


def fitted_shifts(
    examiner: Examiner, wrong: Sequence[Outcome], result: str
) -> list[tuple[Rule, Oracle]]:
    """Return rules with the shifts that fit some wrong calls best.

    Only rules that explain at least one of these calls are returned.
    """
    fitted: list[tuple[Rule, Oracle]] = []
    # Where nothing is finite, every shift fits as well as any other.
    few = [outcome for outcome in wrong if np.isfinite(outcome.got[result]).any()][:FITTED_TO]
    if not few:
        return fitted
    for family in FAMILIES:
        if family(0.25).vary(examiner.oracle) is None:
            continue
        shift = _best(partial(_error, examiner, few, result, family))
        for number in _short(shift):
            rule = family(number)
            oracle = rule.vary(examiner.oracle)
            if oracle and any(examiner.follows(outcome, result, oracle) for outcome in few):
                fitted.append((rule, oracle))
                break
    return fitted


def _best(error: Callable[[float, float], float]) -> float:
    """Return the minimum of an error: on the grid, then between the neighbouring points.

    The error of a shift is asked for with a limit, above which it need not be exact.
    """
    at, least = 0.0, float("inf")
    for shift in sorted(SHIFTS.tolist(), key=abs):  # the smallest of equal ones
        found = error(shift, least)
        if found < least:
            at, least = shift, found
    step = float(SHIFTS[1] - SHIFTS[0])
    return _between(error, at - step, at + step)


def _between(error: Callable[[float, float], float], low: float, high: float) -> float:
    """Return the minimum between two points, by the golden section."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    of_left, of_right = (error(shift, float("inf")) for shift in (left, right))
    for _ in range(STEPS):
        if of_left < of_right:
            high, right, of_right = right, left, of_left
            left = high - GOLDEN * (high - low)
            of_left = error(left, float("inf"))
        else:
            low, left, of_left = left, right, of_right
            right = low + GOLDEN * (high - low)
            of_right = error(right, float("inf"))
    return (low + high) / 2


def _error(
    examiner: Examiner,
    few: Sequence[Outcome],
    result: str,
    family: Family,
    shift: float,
    limit: float,
) -> float:
    """Return the error of an oracle with a shift relative to the implementation's results.

    The calls after which it exceeds the limit are not computed.
    """
    oracle = family(shift).vary(examiner.oracle) or examiner.oracle  # None for the right shift
    total = 0.0
    for outcome in few:
        try:
            expected = examiner.expected(outcome, outcome.case, only(oracle, result))[result]
        except Exception:  # noqa: BLE001 - a changed rule may read beyond a map
            return float("inf")
        with np.errstate(all="ignore"):
            difference = outcome.got[result].astype(np.float64) - expected
            total += float(np.abs(np.nan_to_num(difference)).sum())
        if total > limit:
            break
    return total


def _short(shift: float) -> list[float]:
    """Return numbers close to the fitted number, the shortest first."""
    near = [
        float(Fraction(shift).limit_denominator(16)),
        round(shift, 1),
        round(shift, 2),
        round(shift, 3),
    ]
    return [*dict.fromkeys(x for x in near if x and abs(x - shift) <= CLOSE), shift]


def _text(shift: float) -> str:
    return f"{shift:.4g}"
