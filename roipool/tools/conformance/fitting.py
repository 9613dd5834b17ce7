"""Fits the number of a rule to wrong results: the shift of boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np

from roipool.systems import Oracle

from .examine import Examiner, Outcome
from .mutants import shifted
from .rules import Rule

Family: TypeAlias = Callable[[float], Rule]
SHIFTS = np.arange(-32, 33) / 16  # the grid on which the fit starts
FITTED_TO = 3  # calls
STEPS = 30  # of the search between two points of the grid
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
    fitted = []
    few = wrong[:FITTED_TO]
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


def _best(error: Callable[[float], float]) -> float:
    """Return the minimum of an error: on the grid, then between the neighbouring points."""
    at = min(SHIFTS.tolist(), key=lambda shift: (error(shift), abs(shift)))
    step = float(SHIFTS[1] - SHIFTS[0])
    low, high = at - step, at + step
    for _ in range(STEPS):
        third = (high - low) / 3
        if error(low + third) < error(high - third):
            high -= third
        else:
            low += third
    return (low + high) / 2


def _error(
    examiner: Examiner, few: Sequence[Outcome], result: str, family: Family, shift: float
) -> float:
    """Return the error of an oracle with a shift relative to the implementation's results."""
    oracle = family(shift).vary(examiner.oracle) or examiner.oracle  # None for the right shift
    total = 0.0
    for outcome in few:
        try:
            expected = examiner.expected(outcome, outcome.case, oracle)[result]
        except Exception:  # noqa: BLE001 - a changed rule may read beyond a map
            return float("inf")
        with np.errstate(all="ignore"):
            difference = outcome.got[result].astype(np.float64) - expected
            total += float(np.abs(np.nan_to_num(difference)).sum())
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
