"""Why two systems differ in a bin: found by exchanging their rules one at a time.

The value of the bin is computed by the rules of one system, then with one rule after another taken
from the other, in the order in which they apply. What each exchange changes is that rule's part of
the difference; rules that change nothing here are left out. Nothing is guessed: where the rules do
not give what an implementation answered, that is said instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool.cli.text import short
from roipool.tools.compare.evaluation import (
    NotExplainedError,
    Place,
    box_in_cells,
    pooled_value,
    sample_counts,
)
from roipool.tools.compare.problem import Problem
from roipool.tools.compare.rules import RULES, Rules, rules_of

__all__ = ["Reason", "Verdict", "explain", "number"]

FloatArray = NDArray[np.float32]

ROUNDINGS = 64  # of the largest value: more than engines add up in different orders
_SMALL = 0.01  # part of the difference that is not worth a reason


class Reason(NamedTuple):
    """One rule's part.

    Attributes
    ----------
    rule : str
        A field of `Rules`.
    change : float
        What taking this rule from the other system adds to the reference's value.
    words : str
        What the other system does, with this box's numbers.
    """

    rule: str
    change: float
    words: str


@dataclass(frozen=True)
class Verdict:
    """Why two implementations differ at one place.

    Attributes
    ----------
    reasons : list of Reason
        The rules that account for the difference, in the order in which they were exchanged.
    remark : str
        What else is to be said, such as that the rules do not explain it.
    """

    reasons: list[Reason]
    remark: str = ""

    @property
    def words(self) -> str:
        """One sentence."""
        parts = [f"{one.words} ({_signed(one.change)})" for one in self.reasons]
        return "; ".join([*parts, self.remark] if self.remark else parts)


def explain(
    problem: Problem,
    part: str,
    names: tuple[str, str],
    where: tuple[int, ...],
    outputs: tuple[FloatArray, FloatArray],
) -> Verdict:
    """Say why an implementation differs from another at one place.

    Parameters
    ----------
    problem : Problem
        What both computed.
    part : str
        One of `roipool.tools.compare.problem.PARTS`.
    names : (str, str)
        The implementation, and the one that it is compared with.
    where : tuple of int
        The element: box, channel, row and column of the bin, for a forward.
    outputs : (ndarray, ndarray)
        All that the two answered.

    Returns
    -------
    Verdict
    """
    values = float(outputs[0][where]), float(outputs[1][where])
    known = [rules_of(name) for name in names]
    if part != "forward":
        return Verdict([], _of_gradients(problem, known[0], known[1], values))
    try:
        return _explain_bin(problem, names, known, where, outputs)
    except NotExplainedError as error:
        return Verdict([], f"{error} are not looked at")


def _explain_bin(
    problem: Problem,
    names: tuple[str, str],
    known: list[Rules | None],
    where: tuple[int, ...],
    outputs: tuple[FloatArray, FloatArray],
) -> Verdict:
    values = float(outputs[0][where]), float(outputs[1][where])
    k, channel, row, column = where
    image = problem.features[int(problem.rois[k, 0]), channel]
    place = Place(image, problem.rois[k, 1:], (row, column), problem.options)
    remarks = []
    for index, name in enumerate(names):
        if known[index] is None:
            if ":" not in name:  # no function of the user's
                return Verdict([], f"the rules of {name} are not known")
            found = _find_rules(place, outputs[index][k, channel], problem)
            if found is None:
                return Verdict([], f"no rules known here give what {name} answers")
            known[index] = found.rules
            remarks.append(f"{name} answers here as {found.words}")
    ours, theirs = known
    assert ours is not None
    assert theirs is not None
    if broken := _broken(place, names, (ours, theirs), values, problem):
        return Verdict([], "; ".join([*remarks, *broken]))
    verdict = _exchange(place, theirs, ours, values, problem)
    return Verdict(verdict.reasons, "; ".join(filter(None, [*remarks, verdict.remark])))


def _of_gradients(
    problem: Problem, ours: Rules | None, theirs: Rules | None, values: tuple[float, float]
) -> str:
    """Say which rules differ: a gradient's value has parts of many bins."""
    if ours is None or theirs is None:
        return ""
    names = theirs.differing(ours)
    if not names:
        return _same_rules(problem, values)
    return f"their rules differ in {', '.join(_NAMES[rule] for rule in names)}"


def _same_rules(problem: Problem, values: tuple[float, float]) -> str:
    if abs(values[0] - values[1]) <= _roundings(problem, values):
        return "the same rules: only sums are rounded otherwise"
    return "the same rules, so one of the two does not keep them"


def _roundings(problem: Problem, values: tuple[float, float]) -> float:
    """Return how far apart the same sum may be."""
    largest = max([problem.largest, *(abs(value) for value in values if math.isfinite(value))])
    return ROUNDINGS * largest * float(np.finfo(np.float32).eps)


def _near(value: float, other: float, allowed: float) -> bool:
    """Return whether two values are so close; a NaN is close to a NaN."""
    if math.isnan(value) or math.isnan(other):
        return math.isnan(value) and math.isnan(other)
    return value == other or abs(value - other) <= allowed


def _broken(
    place: Place,
    names: tuple[str, str],
    rules: tuple[Rules, Rules],
    values: tuple[float, float],
    problem: Problem,
) -> list[str]:
    """Say which of the two does not answer what its rules give."""
    allowed = _roundings(problem, values)
    found = []
    for name, own, value in zip(names, rules, values, strict=True):
        expected = pooled_value(own, place)
        if not _near(expected, value, allowed):
            found.append(f"{name} does not keep its rules here, which give {number(expected)}")
    return found


def _exchange(
    place: Place, theirs: Rules, ours: Rules, values: tuple[float, float], problem: Problem
) -> Verdict:
    """Exchange the fewest rules that make one system's value the other's."""
    if theirs == ours:
        return Verdict([], _same_rules(problem, values))
    start, end = pooled_value(theirs, place), pooled_value(ours, place)
    allowed = _roundings(problem, values)
    enough = max(_SMALL * abs(end - start), allowed) if math.isfinite(end - start) else allowed
    names = theirs.differing(ours)
    needed = next(
        chosen
        for count in range(len(names) + 1)
        for chosen in itertools.combinations(names, count)
        if _near(pooled_value(_with(theirs, ours, chosen), place), end, enough)
    )
    rules, value, reasons = theirs, start, list[Reason]()
    for rule in needed:
        changed = _with(rules, ours, (rule,))
        now = pooled_value(changed, place)
        reasons.append(Reason(rule, now - value, _WORDS[rule](_Exchange(place, rules, changed))))
        rules, value = changed, now
    return Verdict(reasons)


def _with(rules: Rules, other: Rules, names: tuple[str, ...]) -> Rules:
    """Return rules with some of another's."""
    return replace(rules, **{name: getattr(other, name) for name in names})


class _Found(NamedTuple):
    """Rules that give what an unknown implementation answers, and whose they are."""

    rules: Rules
    words: str


def _find_rules(place: Place, answered: FloatArray, problem: Problem) -> _Found | None:
    """Find rules that give an unknown implementation's answers for one box and channel."""
    allowed = _roundings(problem, (float(answered[place.bin]), 0.0))

    def error(rules: Rules) -> float:
        """Return the greatest error; infinity as soon as one is not a rounding."""
        greatest = 0.0
        for row, column in itertools.chain([place.bin], np.ndindex(answered.shape)):
            value = pooled_value(rules, place._replace(bin=(row, column)))
            greatest = max(greatest, abs(value - answered[row, column]))
            if not greatest <= allowed:
                return math.inf
        return greatest

    errors = [(error(found.rules), found) for found in _known_and_near(place.rotated)]
    least, nearest = min(errors, key=lambda pair: pair[0])
    return nearest if least <= allowed else None


def _known_and_near(rotated: bool) -> Iterator[_Found]:
    """Yield the rules of each system, then those that differ from one of them in one rule."""
    systems: dict[Rules, str] = {}
    # Many systems share rules: the name that most people know stands for all of them.
    for name, rules in sorted(RULES.items(), key=lambda item: "torchvision" not in item[0]):
        if not rotated or "rotated" in name.lower():
            systems.setdefault(rules, name)
    for rules, name in systems.items():
        yield _Found(rules, name)
    for rules, name in systems.items():
        for rule, choices in _CHOICES.items():
            if rule not in (_UPRIGHT if rotated else _TURNED):
                for choice in choices:
                    near = replace(rules, **{rule: choice})
                    if near not in systems:
                        yield _Found(near, f"{name} would with another rule for {_NAMES[rule]}")


_CHOICES: dict[str, tuple[Any, ...]] = {
    "rounding": ("none", "half away", "half even"),
    "shift": (0.0, 0.5),
    "extra": ("none", "cell", "pixel"),
    "minimum": (False, True),
    "ratio": (1, 2, 3, 4),
    "border": ("hold", "zero", "drop"),
    "weights": ("linear", "doubled"),
    "reduce": ("mean", "max", "max of corners"),
    "angle": ("clockwise", "degrees", "clockwise degrees", "ignored"),
}
_TURNED = ("angle",)
_UPRIGHT = ("rounding", "extra", "border", "weights")  # only of boxes without an angle


# ---- Words


class _Exchange(NamedTuple):
    """The exchange of one rule at one place."""

    place: Place
    before: Rules
    after: Rules

    def ends(self) -> tuple[list[float], list[float]]:
        """Return x1, y1, x2, y2 in map cells before and after."""
        return box_in_cells(self.before, self.place), box_in_cells(self.after, self.place)

    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return rows and columns of samples in the bin before and after."""
        return sample_counts(self.before, self.place), sample_counts(self.after, self.place)


def _say_rounding(exchange: _Exchange) -> str:
    before, after = exchange.ends()
    how = {"none": "does not round the box", "half even": "rounds halves to even"}
    words = how.get(exchange.after.rounding, "rounds the box to whole cells")
    x = f"x {_span(before, 0)} becomes {_span(after, 0)}"
    return f"{words}: {x}, y {_span(before, 1)} becomes {_span(after, 1)}"


def _say_shift(exchange: _Exchange) -> str:
    before, after = exchange.ends()
    x = f"x from {_number(before[0])} to {_number(after[0])}"
    if exchange.after.shift:
        return f"moves the box by half a cell up and left, {x}"
    return f"does not move the box by half a cell, {x}"


def _say_extra(exchange: _Exchange) -> str:
    before, after = exchange.ends()
    width, wider = before[2] - before[0], after[2] - after[0]
    what = {"none": "adds nothing", "cell": "adds 1 cell", "pixel": "adds 1 pixel"}
    return (
        f"{what[exchange.after.extra]} to the box's size: width {_number(width)} becomes "
        f"{_number(wider)}"
    )


def _say_minimum(exchange: _Exchange) -> str:
    before, after = exchange.ends()
    was, now = ([ends[i + 2] - ends[i] for i in (0, 1)] for ends in (before, after))
    sizes = f"{_number(was[0])} x {_number(was[1])} becomes {_number(now[0])} x {_number(now[1])}"
    if exchange.after.minimum:
        return f"makes the box at least one cell long: {sizes}"
    return f"takes a box shorter than one cell as it is: {sizes}"


def _say_samples(exchange: _Exchange) -> str:
    (_, now) = exchange.counts()
    count = f"{now[0]} x {now[1]}"
    return {
        "grid": f"reads a grid of {count} interpolated samples",
        "cells": f"reads the {count} whole cells that the bin touches",
        "steps": f"reads {count} samples one cell apart from the bin's start",
        "ends": "reads one sample, the first and last bins' at the box's ends",
        "integral": "integrates the interpolated map over the bin",
    }[exchange.after.samples]


def _say_ratio(exchange: _Exchange) -> str:
    was, now = exchange.counts()
    return f"takes {now[0]} x {now[1]} samples in the bin, not {was[0]} x {was[1]}"


def _say_border(exchange: _Exchange) -> str:
    return {
        "hold": "holds samples outside the map at its border for one cell",
        "zero": "counts samples outside the cells' centres as 0",
        "drop": "leaves out the neighbours beyond the map",
    }[exchange.after.border]


def _say_weights(exchange: _Exchange) -> str:
    if exchange.after.weights == "doubled":
        return "counts a cell twice where a sample lies exactly on it"
    return "counts a cell once where a sample lies exactly on it"


def _say_reduce(exchange: _Exchange) -> str:
    was, now = (
        {"mean": "the mean", "max": "the maximum", "max of corners": "the largest weighted corner"}[
            rules.reduce
        ]
        for rules in (exchange.before, exchange.after)
    )
    return f"takes {now} of the bin, not {was}"


def _say_empty(exchange: _Exchange) -> str:
    return f"gives a bin without samples {_number(exchange.after.empty)}"


def _say_angle(exchange: _Exchange) -> str:
    angle = _number(exchange.place.box[4])
    return {
        "counter-clockwise": f"turns the box counter-clockwise by {angle} radians",
        "clockwise": f"turns the box clockwise by {angle} radians",
        "degrees": f"takes the angle {angle} for degrees",
        "clockwise degrees": f"takes the angle {angle} for degrees, clockwise",
        "ignored": f"does not turn the box by its angle {angle}",
    }[exchange.after.angle]


_WORDS: dict[str, Callable[[_Exchange], str]] = {
    "rounding": _say_rounding,
    "shift": _say_shift,
    "extra": _say_extra,
    "minimum": _say_minimum,
    "samples": _say_samples,
    "ratio": _say_ratio,
    "border": _say_border,
    "weights": _say_weights,
    "reduce": _say_reduce,
    "angle": _say_angle,
    "empty": _say_empty,
}

_NAMES = {
    "rounding": "the rounding of the box",
    "shift": "the half-cell shift",
    "extra": "the +1 of the box's size",
    "minimum": "the least size of a box",
    "samples": "what a bin reads",
    "ratio": "the number of samples",
    "border": "the border rule",
    "weights": "the weights of neighbours",
    "reduce": "maximum against mean",
    "angle": "the angle of a box",
    "empty": "the value of empty bins",
}


def number(value: float) -> str:
    """Write a value for people."""
    return "NaN" if math.isnan(value) else short(value)


def _span(ends: list[float], axis: int) -> str:
    return f"{_number(ends[axis])} to {_number(ends[axis + 2])}"


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def _signed(value: float) -> str:
    if not math.isfinite(value):
        return number(value)
    return f"+{short(value, 2)}" if value >= 0 else short(value, 2)
