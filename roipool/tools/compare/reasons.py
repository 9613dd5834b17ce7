"""Explains the difference of two systems in a bin by exchanging their rules one at a time.

The value of the bin is computed by the rules of one system, then with one rule after another taken
from the other system, in the order in which they apply. The change of each exchange is the rule's
part of the difference; rules that change nothing are omitted. If the rules do not reproduce an
implementation's result, that is reported instead.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool.cli.text import short
from roipool.reference import Rules
from roipool.systems import RULES
from roipool.tools.alternatives import ALTERNATIVES, FIELDS, Alternative, alternative
from roipool.tools.compare.differences import distance
from roipool.tools.compare.evaluation import (
    BinOnMap,
    NotExplainedError,
    box_in_cells,
    pooled_value,
    sample_counts,
)
from roipool.tools.compare.problem import Problem
from roipool.tools.compare.systems import VOLUME_SYSTEMS, has_own_gradient, rules_of

__all__ = [
    "ROUNDINGS",
    "NearRules",
    "Reason",
    "Verdict",
    "bins_changed",
    "explain",
    "near_rules",
    "number",
]

FloatArray = NDArray[np.float32]

ROUNDINGS = 64  # of the largest value: an upper bound for sums in different orders
_POSITIONS = 8  # roundings of a position, with the slopes of both axes
_MANY = 8  # boxes, and channels, that must follow rules to be named without a doubt
_OTHER_BOXES = 7  # boxes that distinguish an unknown function's rules from chance matches
_COUNTED = 32  # bins of which the rules are counted that change them
_COUNTED_CELLS = 2**21  # of large pictures fewer, with so many cells
_SMALL = 0.01  # fraction of the difference that needs no explanation


class Reason(NamedTuple):
    """One rule's part of a difference."""

    rule: str  # a field of `Rules`
    # The change of the reference's value when this rule is taken from the other system.
    change: float
    words: str  # description of the other system's rule, with this box's numbers


@dataclass(frozen=True)
class Verdict:
    """The explanation of a difference at one element."""

    # The rules that account for the difference, in the order in which they were exchanged.
    reasons: list[Reason]
    remark: str = ""  # a remark, for example that the rules do not explain the difference
    unknown: str = ""  # a user's function whose rules are not known; empty if both are

    @property
    def words(self) -> str:
        """The explanation as text."""
        parts = [f"{reason.words} ({_signed(reason.change)})" for reason in self.reasons]
        return "; ".join([*parts, self.remark] if self.remark else parts)


def explain(
    problem: Problem,
    part: str,
    names: tuple[str, str],
    where: tuple[int, ...],
    outputs: tuple[FloatArray, FloatArray],
) -> Verdict:
    """Explain the difference of two implementations at one element.

    Parameters
    ----------
    part : str
        One of `roipool.tools.compare.problem.PARTS`.
    where : tuple of int
        Index of the element: for a forward, box, channel, and row and column of the bin, in a
        volume its plane before them.
    """
    values = float(outputs[0][where]), float(outputs[1][where])
    known = [rules_of(name) for name in names]
    if part != "forward":
        own = [name for name in names if has_own_gradient(name, part)]
        return Verdict([], _of_gradients(problem, known[0], known[1], values, own))
    try:
        return _explain_bin(problem, names, known, where, outputs)
    except NotExplainedError as error:
        return Verdict([], f"not explained: {error}")


def bins_changed(
    problem: Problem, names: tuple[str, str], outputs: tuple[FloatArray, FloatArray]
) -> dict[str, int]:
    """Count the bins that each rule changes, of some in which two systems differ.

    Parameters
    ----------
    problem, names, outputs
        As for `explain`.

    Returns
    -------
    dict of str to int
        The rules that change any, by the number of bins; empty if the rules of one of the two are
        not known.
    """
    ours, theirs = map(rules_of, names)
    counts: dict[str, int] = {}
    if ours is None or theirs is None:
        return counts
    apart = distance(*outputs) > _roundings(problem, (0.0, 0.0))
    wheres = np.argwhere(apart)
    cells = math.prod(problem.features.shape[2:]) // math.prod(problem.options.output_size)
    counted = min(max(_COUNTED_CELLS // max(cells, 1), 4), _COUNTED)
    for k, channel, *number in wheres[:: max(len(wheres) // counted, 1)].tolist():
        try:
            place = _place(problem, k, channel, tuple(number))
            first, second = (float(output[k, channel, *number]) for output in outputs)
            reasons = _exchange(place, theirs, ours, (first, second), problem).reasons
        except NotExplainedError:
            continue
        for reason in reasons:
            counts[reason.rule] = counts.get(reason.rule, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _explain_bin(
    problem: Problem,
    names: tuple[str, str],
    known: list[Rules | None],
    where: tuple[int, ...],
    outputs: tuple[FloatArray, FloatArray],
) -> Verdict:
    values = float(outputs[0][where]), float(outputs[1][where])
    k, channel, *number = where
    place = _place(problem, k, channel, tuple(number))
    remarks = []
    for index, name in enumerate(names):
        if known[index] is None:
            if ":" not in name:  # not a user's function
                return Verdict([], f"the rules of {name} are not known")
            match = _find_rules(problem, outputs[index], place, k, channel)
            if match is None:
                return Verdict([], f"no known rules give the result of {name}", name)
            known[index] = match.rules
            remarks.append(f"{name} computes here like {match.words}")
    ours, theirs = known
    assert ours is not None
    assert theirs is not None
    if broken := _broken(place, names, (ours, theirs), values, problem):
        if _is_near(*values, _position_roundings(place, (ours, theirs), problem)):
            broken = ["positions are rounded otherwise"]
        return Verdict([], "; ".join([*remarks, *broken]))
    verdict = _exchange(place, theirs, ours, values, problem)
    return Verdict(verdict.reasons, "; ".join(filter(None, [*remarks, verdict.remark])))


def _place(problem: Problem, box: int, channel: int, bin: tuple[int, ...]) -> BinOnMap:
    image = problem.features[int(problem.rois[box, 0]), channel]
    return BinOnMap(image, problem.rois[box, 1:], bin, problem.options)


def _of_gradients(
    problem: Problem,
    ours: Rules | None,
    theirs: Rules | None,
    values: tuple[float, float],
    own: list[str],
) -> str:
    """Name the rules that differ; a gradient's value sums many bins, so nothing is exchanged.

    `own` are those of the two whose gradient follows no rules but their own.
    """
    if ours is None or theirs is None:
        return ""
    names = theirs.differing(ours)
    if names:
        return f"their rules differ in {', '.join(FIELDS[rule] for rule in names)}"
    if own and not _is_near(*values, _roundings(problem, values)):
        return f"the gradient of {own[0]} is not the derivative of its forward"
    return _same_rules(problem, values)


def _same_rules(problem: Problem, values: tuple[float, float]) -> str:
    if abs(values[0] - values[1]) <= _roundings(problem, values):
        return "the same rules: only sums are rounded otherwise"
    return "the same rules, so one of the two breaks them"


def _roundings(problem: Problem, values: tuple[float, float]) -> float:
    """Return how much the results of the same sum may differ."""
    largest = max([problem.largest, *(abs(value) for value in values if math.isfinite(value))])
    return ROUNDINGS * largest * float(np.finfo(np.float32).eps)


def _position_roundings(place: BinOnMap, rules: tuple[Rules, Rules], problem: Problem) -> float:
    """Return how much values may differ whose samples are at positions that are rounded."""
    cells = [abs(end) for each in rules for end in box_in_cells(each, place)]
    farthest = max((cell for cell in cells if math.isfinite(cell)), default=0.0)
    return _POSITIONS * farthest * problem.largest * float(np.finfo(np.float32).eps)


def _is_near(value: float, other: float, allowed: float) -> bool:
    """Return whether two values differ by at most `allowed`; NaN equals NaN."""
    if math.isnan(value) or math.isnan(other):
        return math.isnan(value) and math.isnan(other)
    return value == other or abs(value - other) <= allowed


def _broken(
    place: BinOnMap,
    names: tuple[str, str],
    rules: tuple[Rules, Rules],
    values: tuple[float, float],
    problem: Problem,
) -> list[str]:
    """Describe which of the two does not follow its own rules."""
    allowed = _roundings(problem, values)
    broken = []
    for name, own, value in zip(names, rules, values, strict=True):
        expected = pooled_value(own, place)
        if not _is_near(expected, value, allowed):
            broken.append(f"{name} differs from its own rules here, which give {number(expected)}")
    return broken


def _exchange(
    place: BinOnMap, theirs: Rules, ours: Rules, values: tuple[float, float], problem: Problem
) -> Verdict:
    """Exchange the fewest rules that turn one system's value into the other's."""
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
        if _is_near(pooled_value(_with(theirs, ours, chosen), place), end, enough)
    )
    rules, value, reasons = theirs, start, list[Reason]()
    for rule in needed:
        changed = _with(rules, ours, (rule,))
        now = pooled_value(changed, place)
        reasons.append(Reason(rule, now - value, RuleExchange(place, rules, changed).words(rule)))
        rules, value = changed, now
    return Verdict(reasons)


def _with(rules: Rules, other: Rules, names: tuple[str, ...]) -> Rules:
    """Return `rules` with the fields `names` taken from `other`."""
    return replace(rules, **{name: getattr(other, name) for name in names})


class NearRules(NamedTuple):
    """Rules that an unknown implementation may follow: a system's, perhaps with one changed."""

    rules: Rules
    system: str
    change: str = ""  # the changed rule; empty if none is

    @property
    def words(self) -> str:
        """The system, and the change."""
        return f"{self.system}, but {self.change}" if self.change else self.system


def near_rules(problem: Problem, pooled: FloatArray) -> NearRules | None:
    """Return rules, a system's except for one, that give the first of some pooled values."""
    boxes, channels = range(min(len(pooled), _MANY)), range(min(pooled.shape[1], _MANY))
    wheres = [(k, channel) for k in boxes for channel in channels]
    zero = (0,) * len(problem.axes)

    def gives(rules: Rules) -> bool:
        return all(
            _error(rules, _place(problem, *where, zero), pooled[where], problem) < math.inf
            for where in wheres
        )

    systems = _systems(problem)
    try:
        if not wheres or any(gives(system.rules) for system in systems):
            return None
        return next((near for near in _near(systems, problem.rotated) if gives(near.rules)), None)
    except NotExplainedError:
        return None


def _error(rules: Rules, place: BinOnMap, values: FloatArray, problem: Problem) -> float:
    """Return the largest error in a box's bins, or infinity if one is larger than roundings.

    The bin of the place is the first that is tried.
    """
    greatest, allowed = 0.0, _roundings(problem, (float(values[place.bin]), 0.0))
    for number in itertools.chain([place.bin], np.ndindex(values.shape)):
        value = pooled_value(rules, place._replace(bin=number))
        greatest = max(greatest, abs(value - values[number]))
        if not greatest <= allowed:
            return math.inf
    return greatest


def _find_rules(
    problem: Problem, pooled: FloatArray, place: BinOnMap, k: int, channel: int
) -> NearRules | None:
    """Find rules that reproduce an unknown implementation's output for box `k`.

    Of several candidates, the one that holds for most of the other boxes is chosen.
    """
    others = [other for other in range(len(problem.rois)) if other != k][:_OTHER_BOXES]

    def error(rules: Rules, box: int) -> float:
        at = _place(problem, box, channel, place.bin)
        return _error(rules, at, pooled[box, channel], problem)

    def misses(rules: Rules) -> int:
        return sum(math.isinf(error(rules, box)) for box in others)

    systems = _systems(problem)
    for candidates in (systems, _near(systems, problem.rotated)):
        errors = [(error(candidate.rules, k), candidate) for candidate in candidates]
        fitting = [
            (misses(candidate.rules), least, candidate)
            for least, candidate in errors
            if least < math.inf
        ]
        if fitting:
            return min(fitting, key=lambda entry: entry[:2])[2]
    return None


def _systems(problem: Problem) -> list[NearRules]:
    """Return the distinct rules of the systems that could have computed a problem."""
    systems: dict[Rules, str] = {}
    # Many systems share rules; the best-known name represents all of them.
    for name, rules in sorted(RULES.items(), key=lambda item: "torchvision" not in item[0]):
        is_possible = not problem.rotated or "rotated" in name.lower()
        if is_possible and (name in VOLUME_SYSTEMS) == problem.is_volume:
            systems.setdefault(rules, name)
    return [NearRules(rules, name) for rules, name in systems.items()]


def _near(systems: list[NearRules], rotated: bool) -> list[NearRules]:
    """Return rules that differ from a system's in one rule."""
    near: dict[Rules, NearRules] = {}
    for rules, name, _ in systems:
        for other in ALTERNATIVES:
            if _applies(other.field, rules, rotated):
                changed = replace(rules, **{other.field: other.value})
                if changed.shift_unit == "pixel" and not changed.shift:
                    changed = replace(changed, shift=0.5)
                near.setdefault(changed, NearRules(changed, name, _mistake(other, rules)))
    for system in systems:
        near.pop(system.rules, None)
    return list(near.values())


def _mistake(other: Alternative, rules: Rules) -> str:
    """Describe a rule that no system has besides otherwise the same rules."""
    words = (each.words for each in other.mistakes if rules.samples in each.samples.split())
    return next(words, f"with another rule for {FIELDS[other.field]}")


# Rules in which an unknown implementation may differ from every system. The other rules show only
# on NaN or ties, or determine everything that a bin reads.
_SEARCHED = (
    "rounding shift shift_unit extra minimum ratio adaptive centre edges cut spread border "
    "weights divisor reduce"
).split()
_OF_ROTATED = ("shift", "shift_unit", "minimum", "angle", "ratio", "adaptive", "divisor", "reduce")
_READ_BY = {
    "ratio": ("grid",),
    "adaptive": ("grid",),
    "centre": ("grid",),
    "edges": ("cells",),
    "cut": ("cells",),
    "spread": ("ends",),
}


def _applies(field: str, rules: Rules, rotated: bool) -> bool:
    """Return whether a rule has an effect on such boxes in a system with these rules."""
    if rotated:
        return field in _OF_ROTATED
    return field in _SEARCHED and rules.samples in _READ_BY.get(field, (rules.samples,))


# ---- Words


@dataclass(frozen=True)
class RuleExchange:
    """The exchange of one rule at one bin, with the numbers for its description."""

    place: BinOnMap
    before: Rules
    after: Rules

    @property
    def ends(self) -> tuple[list[float], list[float]]:
        """The box in map cells before and after."""
        return box_in_cells(self.before, self.place), box_in_cells(self.after, self.place)

    @property
    def spans(self) -> str:
        """All sides of the box."""
        before, after = self.ends
        axes = "xyz"[: len(before) // 2]
        return ", ".join(
            f"{name} {_span(before, axis)} becomes {_span(after, axis)}"
            for axis, name in enumerate(axes)
        )

    @property
    def backwards(self) -> str:
        """The direction of smaller coordinates."""
        return "up and left" if len(self.place.bin) == 2 else "up, left and towards plane 0"

    @property
    def left_end(self) -> str:
        """The left end of the box, before and after."""
        before, after = self.ends
        return f"x from {_number(before[0])} to {_number(after[0])}"

    @property
    def widths(self) -> str:
        """The width of the box."""
        width, wider = (_lengths(ends)[0] for ends in self.ends)
        return f"width {_number(width)} becomes {_number(wider)}"

    @property
    def sizes(self) -> str:
        """Width and height of the box, and its depth in a volume."""
        before, after = (" x ".join(map(_number, _lengths(ends))) for ends in self.ends)
        return f"{before} becomes {after}"

    @property
    def count(self) -> str:
        """The samples along each axis after the exchange."""
        return " x ".join(map(str, sample_counts(self.after, self.place)))

    @property
    def counts(self) -> str:
        """The samples along each axis after and before the exchange."""
        before = " x ".join(map(str, sample_counts(self.before, self.place)))
        return f"{self.count} samples in the bin, not {before}"

    @property
    def other_reduction(self) -> str:
        """The reduction before the exchange: mean or maximum."""
        known = alternative("reduce", self.before.reduce)
        assert known is not None
        return known.brief

    @property
    def angle(self) -> str:
        """The angle of a rotated box."""
        return _number(self.place.box[4])

    def words(self, field: str) -> str:
        """Describe the other system's rule."""
        value = getattr(self.after, field)
        known = alternative(field, value)
        if known is not None:
            return known.words.format(self)
        if field == "empty":
            return f"gives a bin without samples {_number(value)}"
        return f"has {FIELDS[field]} {value}"


def number(value: float) -> str:
    """Format a value for display."""
    return "NaN" if math.isnan(value) else short(value)


def _span(ends: list[float], axis: int) -> str:
    return f"{_number(ends[axis])} to {_number(ends[len(ends) // 2 + axis])}"


def _lengths(ends: list[float]) -> list[float]:
    """Return width, height and, in a volume, depth."""
    axes = len(ends) // 2
    return [ends[axes + axis] - ends[axis] for axis in range(axes)]


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def _signed(value: float) -> str:
    if not math.isfinite(value):
        return number(value)
    return f"+{short(value, 2)}" if value >= 0 else short(value, 2)
