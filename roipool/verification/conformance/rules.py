"""What implementations get wrong: each rule is the oracle with one thing changed.

An implementation whose wrong answers are those of such an oracle, and its right answers too,
follows that rule. `RULES` is the table; a row applies to the operations whose oracle has what it
changes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool import reference
from roipool.reference._interpolation import _round_half_away
from roipool.reference._loops import Bin, Sample
from roipool.reference._roi_align import _neighbours, _samples_per_bin
from roipool.verification.differential.calling import Results
from roipool.verification.differential.case import Case
from roipool.verification.differential.oracle import LOWEST_FLOAT32, Oracle

Vary: TypeAlias = Callable[[Oracle], Oracle | None]


class Rule(NamedTuple):
    """A rule that an implementation may follow instead of the right one.

    Attributes
    ----------
    name : str
        Short, for programs and tables.
    words : str
        What the implementation does, and what is right.
    vary : callable
        From an operation's oracle to one that does so; None where that has no meaning.
    """

    name: str
    words: str
    vary: Vary


# ---- Ways to change an oracle


def _rules(**changes: Any) -> Vary:
    """Replace some of the oracle's own rules."""

    def vary(oracle: Oracle) -> Oracle | None:
        fixed = oracle.operation.fixed
        parameters = inspect.signature(getattr(reference, oracle.operation.forward)).parameters
        if "rules" not in parameters:
            return None
        rules = fixed.get("rules", parameters["rules"].default)
        if not set(changes) <= set(rules._fields) or all(
            getattr(rules, name) == value for name, value in changes.items()
        ):
            return None
        return _with_fixed(oracle, rules=rules._replace(**changes))

    return vary


def _with_fixed(oracle: Oracle, **fixed: Any) -> Oracle:
    operation = oracle.operation
    return oracle._replace(operation=operation._replace(fixed={**operation.fixed, **fixed}))


def _argument(name: str, value: Any, default: Any) -> Vary:
    """Give the oracle's function an argument; `default` is what it is otherwise."""

    def vary(oracle: Oracle) -> Oracle | None:
        parameters = inspect.signature(getattr(reference, oracle.operation.forward)).parameters
        if name not in parameters or oracle.operation.fixed.get(name, default) == value:
            return None
        return _with_fixed(oracle, **{name: value})

    return vary


def _case(change: Callable[[Case], Case]) -> Vary:
    """Give the oracle another case."""
    return lambda oracle: oracle._replace(prepare=lambda case: oracle.prepare(change(case)))


def _option(name: str, value: Any) -> Vary:
    """Give the oracle another value of an option, where the operation has it."""

    def change(case: Case) -> Case:
        if name not in case.options:
            return case
        return replace(case, options={**case.options, name: value})

    return _case(change)


def _results(change: Callable[[Case, Results], Results]) -> Vary:
    """Change what the oracle returns."""
    return lambda oracle: oracle._replace(
        finish=lambda case, found: change(case, oracle.finish(case, found))
    )


# ---- Boxes


def _finite(nan: float, positive: float, negative: float) -> Vary:
    """Let coordinates that are not finite be what a conversion to an integer makes of them."""
    return _case(
        lambda case: replace(
            case, rois=np.nan_to_num(case.rois, nan=nan, posinf=positive, neginf=negative)
        )
    )


def _columns(order: list[int]) -> Vary:
    return _case(lambda case: replace(case, rois=case.rois[:, order]))


def _first_image(case: Case) -> Case:
    table = case.rois.copy()
    table[:, 0] = 0
    return replace(case, rois=table)


def _sides_as_corners(case: Case) -> Case:
    table = case.rois.copy()
    table[:, 3:5] += table[:, 1:3]
    return replace(case, rois=table)


def _side(
    *, shift: float | None = None, extra: float = 0.0, least: bool | None = None,
    rounded: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Return the start and length of a side of ROI align, with something else about it.

    `shift` is in cells, by default half a cell if aligned; `least` says whether a side is at least
    a cell long, by default if not aligned.
    """

    def side(first: float, last: float, scale: float, aligned: bool, real: Any) -> Any:
        offset = real((0.5 if aligned else 0.0) if shift is None else shift)
        start, end = real(first) * real(scale) - offset, real(last) * real(scale) - offset
        if not (np.isfinite(start) and np.isfinite(end)):
            return real(math.nan), real(math.nan), False
        if rounded:
            start, end = real(_round_half_away(start)), real(_round_half_away(end))
        length = end - start + real(extra)
        if (not aligned if least is None else least) and length < 1:
            return start, real(1), True
        return start, length, False

    return side


def _turned(case: Case) -> Case:
    if "clockwise" not in case.options:
        return case
    return replace(case, options={**case.options, "clockwise": not case.options["clockwise"]})


# ---- Samples of ROI align


def _count(adaptive: Callable[[float], int], least: int = 0) -> Callable[..., int]:
    """Return the samples of a bin where `adaptive` rounds its length."""

    def samples(length: Any, bins: int, ratio: int, real: Any, count_real: Any) -> int:
        if ratio > 0:
            return ratio
        right = _samples_per_bin(length, bins, ratio, real, count_real)
        return max(adaptive(float(length / real(bins))), least) if 0 < right < 2**20 else right

    return samples


def _always_adaptive(length: Any, bins: int, ratio: int, real: Any, count_real: Any) -> int:
    return _samples_per_bin(length, bins, 0, real, count_real)


def _never_adaptive(number: int) -> Callable[..., int]:
    return lambda length, bins, ratio, real, count_real: ratio if ratio > 0 else number


def _swapped(at: Any, size: int, real: Any) -> Any:
    low, high, before, after = _neighbours(at, size, real)
    return low, high, after, before


def _nearest(at: Any, size: int, real: Any) -> Any:
    cell = min(max(_round_half_away(at), 0), size - 1)
    return cell, cell, 1.0, 0.0


def _row_before_first(wraps: bool) -> Callable[..., Any]:
    """Return neighbours by floor: before the first cell's centre, the cell -1 is one of them."""

    def neighbours(at: Any, size: int, real: Any) -> Any:
        if not at < 0:
            return _neighbours(at, size, real)
        after = float(at - real(math.floor(at)))
        return (size - 1, 0, 1 - after, after) if wraps else (0, 0, after, 0.0)

    return neighbours


def _cut_to_zero(at: Any, size: int, real: Any) -> Any:
    if not at < 0 or size < 2:
        return _neighbours(at, size, real)
    return (0, 1, float(real(1) - at), float(at)) if at > -1 else (0, 0, 0.0, 0.0)


def _row_past_last(at: Any, size: int, real: Any) -> Any:
    """Weigh a cell past the last, which is 0."""
    if not at > size - 1:
        return _neighbours(at, size, real)
    before = float(real(size) - at)
    return size - 1, size - 1, before, 0.0


def _outside(low: float, high: float, *, ends: bool = False) -> Callable[[Any, int], bool]:
    """Return whether a position is before `low`, or more than `high` behind the last centre."""

    def is_outside(at: Any, size: int) -> bool:
        if size == 0 or math.isnan(at):
            return True
        below, above = (at <= low, at >= size - 1 + high) if ends else (
            at < low, at > size - 1 + high)  # fmt: skip
        return bool(below or above)

    return is_outside


def _undivided(found: Bin) -> Bin:
    return Bin(found.samples, (1, 1))


def _inside_only(found: Bin) -> Bin:
    return Bin(found.samples, (sum(bool(one.pixels) for one in found.samples), 1))


def _nan_if_empty(found: Bin) -> Bin:
    if math.prod(found.grid):
        return found
    return Bin([Sample(0, math.nan, math.nan, [(0, 0, math.nan)])], (1, 1))


def _reading(weightless: bool, corner: bool) -> Callable[[Bin], Bin]:
    """Return what lets samples read cells times 0: their neighbours, and the map's first cell."""

    def weighted(found: Bin) -> Bin:
        samples = []
        for one in found.samples:
            pixels = one.pixels or ([(0, 0, 0.0)] if corner else [])
            samples.append(one._replace(pixels=pixels, reads_all=weightless or not one.pixels))
        return Bin(samples, found.grid)

    return weighted


def _last_first(found: Bin) -> Bin:
    return Bin(found.samples[::-1], found.grid)


# ---- Pooling, cells and their argmax


def _half_to_even(value: Any) -> int:
    return int(np.rint(value))


def _up(value: Any) -> int:
    return math.floor(float(value) + 0.5)


def _half_added_in_type(value: Any) -> int:
    magnitude = math.floor(abs(value) + type(value)(0.5))
    return -magnitude if value < 0 else magnitude


def _cut_after_half(value: Any) -> int:
    return math.trunc(float(value) + 0.5)


def _argmax(change: Callable[[Case, Any], Any]) -> Vary:
    def results(case: Case, found: Results) -> Results:
        if "argmax" not in found:
            return found
        argmax = found["argmax"]
        return {**found, "argmax": np.where(argmax < 0, argmax, change(case, argmax))}

    return _results(results)


def _transposed(case: Case, argmax: Any) -> Any:
    height, width = case.maps.shape[2:]
    return argmax % max(width, 1) * height + argmax // max(width, 1)


def _in_all_channels(case: Case, argmax: Any) -> Any:
    _, channels, height, width = case.maps.shape
    planes = np.arange(channels)[:, None, None] + channels * case.images[:, None, None, None]
    return argmax + planes * height * width


def _empty_bins(value: float) -> Vary:
    def results(case: Case, found: Results) -> Results:
        if "argmax" not in found:
            return found
        empty = (found["argmax"] == -1) & (found["pooled"] == 0)
        return {**found, "pooled": np.where(empty, value, found["pooled"])}

    return _results(results)


def _empty_argmax(case: Case, found: Results) -> Results:
    if "argmax" not in found:
        return found
    return {**found, "argmax": np.maximum(found["argmax"], 0)}


def _from_zero(case: Case, found: Results) -> Results:
    changed = {**found, "pooled": np.maximum(found["pooled"], 0)}
    if "argmax" in found:
        changed["argmax"] = np.where(found["pooled"] > 0, found["argmax"], -1)
    return changed


def _transposed_bins(case: Case, found: Results) -> Results:
    pooled = found["pooled"]
    return {**found, "pooled": np.swapaxes(pooled, 2, 3).reshape(pooled.shape)}


# ---- Crops


def _spread(
    start: Callable[[int], float], steps: Callable[[int], int], extent: Callable[[int], int],
    shift: float = 0.0,
) -> Callable[..., Any]:  # fmt: skip
    """Return where a crop samples: from `start` in `steps`, over an `extent`, shifted."""

    def position(
        first: float, last: float, p: int, bins: int, size: int, real: Any, *,
        pinned: bool, ratio_first: bool,
    ) -> Any:  # fmt: skip
        length = real(last) - real(first)
        share = (real(p) + real(start(bins))) / real(max(steps(bins), 1))
        return (real(first) + share * length) * real(extent(size)) - real(shift)

    return position


def _held(at: Any, size: int, real: Any) -> Any:
    return _neighbours(min(max(at, real(0)), real(size - 1)), size, real)


_GRID_HALF = _spread(lambda bins: 0.5, lambda bins: bins, lambda size: size, 0.5)
_OVER_SIZE = _spread(lambda bins: 0.0, lambda bins: bins - 1, lambda size: size)
_OVER_BINS = _spread(lambda bins: 0.0, lambda bins: bins, lambda size: size - 1)


# ---- The table

RULES: tuple[Rule, ...] = (
    # Boxes
    Rule("batch index ignored", "ignores the batch index: every box is on the first image",
         _case(_first_image)),
    Rule("x and y swapped", "takes boxes as y1, x1, y2, x2 where they are x1, y1, x2, y2, or the "
         "other way round", _columns([0, 2, 1, 4, 3])),
    Rule("corners as sides", "takes the last two numbers of a box for its width and height; they "
         "are a corner", _case(_sides_as_corners)),
    Rule("scale ignored", "ignores spatial_scale", _option("spatial_scale", 1.0)),
    Rule("half pixel left out", "leaves out the half-pixel shift of aligned boxes",
         _rules(side=_side(shift=0.0))),
    Rule("half pixel added", "shifts boxes by half a pixel even if aligned is False",
         _rules(side=_side(shift=0.5))),
    Rule("aligned ignored", "takes aligned=True for False: no half-pixel shift, and sides of at "
         "least one cell", _option("aligned", False)),
    Rule("always aligned", "takes aligned=False for True: a half-pixel shift, and sides of any "
         "length", _option("aligned", True)),
    Rule("mode ignored", "takes half_pixel for output_half_pixel",
         _option("coordinate_transformation_mode", "output_half_pixel")),
    Rule("+1 added", "adds 1 to the width and height of boxes (end - start + 1); a box here "
         "ends at its corner", _rules(side=_side(extra=1.0))),
    Rule("box rounded", "rounds boxes to whole cells first, as ROI pooling does",
         _rules(side=_side(rounded=True))),
    Rule("side not held at 1", "does not hold sides at one cell at least where aligned is False",
         _rules(side=_side(least=False))),
    Rule("side held at 1", "holds sides at one cell at least even where aligned is True",
         _rules(side=_side(least=True))),
    Rule("turns the other way", "turns boxes the other way: clockwise for counter-clockwise",
         _case(_turned)),
    Rule("not finite is 0", "takes coordinates that are not finite for 0; such a box pools to "
         "nothing", _finite(0.0, 0.0, 0.0)),
    Rule("not finite is the lowest", "takes coordinates that are not finite for the lowest "
         "integer; such a box pools to nothing", _finite(-(2.0**31), -(2.0**31), -(2.0**31))),
    Rule("not finite is cut", "takes NaN for 0 and infinity for the largest integer; such a box "
         "pools to nothing", _finite(0.0, 2.0**31, -(2.0**31))),
    Rule("float16", "computes coordinates in float16",
         _argument("coordinate_dtype", np.float16, None)),
    Rule("float64", "computes coordinates in float64, not in the features' type",
         _argument("coordinate_dtype", np.float64, None)),
    # Number of samples
    Rule("adaptive count by floor", "rounds the adaptive number of samples down; it is the ceiling "
         "of the bin's size", _rules(samples_per_bin=_count(math.floor))),
    Rule("adaptive count by floor, at least 1", "rounds the adaptive number of samples down, to 1 "
         "at least; it is the ceiling of the bin's size",
         _rules(samples_per_bin=_count(math.floor, 1))),
    Rule("adaptive count by rounding", "rounds the adaptive number of samples to the nearest; it "
         "is the ceiling of the bin's size", _rules(samples_per_bin=_count(_up))),
    Rule("sampling ratio ignored", "ignores sampling_ratio: it is always adaptive",
         _rules(samples_per_bin=_always_adaptive)),
    Rule("adaptive taken for 2", "takes an adaptive sampling_ratio for 2",
         _rules(samples_per_bin=_never_adaptive(2))),
    Rule("adaptive taken for 1", "takes an adaptive sampling_ratio for 1",
         _rules(samples_per_bin=_never_adaptive(1))),
    Rule("samples at the start", "places samples at the start of their part of the bin, not in its "
         "middle", _rules(centre=0.0)),
    Rule("count without max 1", "divides by the number of samples without max(count, 1): 0/0 is "
         "NaN where a bin has none", _rules(weighted=_nan_if_empty)),
    Rule("not divided", "does not divide the sum of samples by their number",
         _rules(weighted=_undivided)),
    Rule("divided by samples inside", "divides by the number of samples inside the map; those "
         "outside count, too", _rules(weighted=_inside_only)),
    Rule("reads weightless neighbours", "reads neighbours of weight 0 times 0: NaN and infinities "
         "there leak into the result", _rules(weighted=_reading(True, False))),
    Rule("reads the first cell", "reads the map's first cell times 0 for samples outside: NaN and "
         "infinities there leak into the result", _rules(weighted=_reading(False, True))),
    Rule("reads times 0", "reads neighbours of weight 0, and for samples outside the map's first "
         "cell, times 0: NaN and infinities there leak into the result",
         _rules(weighted=_reading(True, True))),
    Rule("maximum for average", "takes the maximum of samples, not their average",
         _argument("mode", "max", "avg")),
    # Weights and borders
    Rule("swapped weights", "swaps the two weights of interpolation along an axis",
         _rules(neighbours=_swapped)),
    Rule("nearest cell", "takes the nearest cell instead of interpolating",
         _rules(neighbours=_nearest)),
    Rule("border at 0", "takes samples before the first cell's centre (-1 to 0) as outside; they "
         "are held at it", _rules(is_outside=_outside(0.0, 1.0))),
    Rule("border at H - 1", "takes samples past the last cell's centre (H - 1 to H) as outside; "
         "they are held at it", _rules(is_outside=_outside(-1.0, 0.0))),
    Rule("border at 0 and H - 1", "takes samples off the rectangle of cell centres as outside; up "
         "to one cell off they are held at it", _rules(is_outside=_outside(0.0, 0.0))),
    Rule("border at -0.5", "takes samples more than half a cell off the cell centres as outside; "
         "it is one cell", _rules(is_outside=_outside(-0.5, 0.5))),
    Rule("-1 and H outside", "takes samples at exactly -1 or H as outside; they are inside",
         _rules(is_outside=_outside(-1.0, 1.0, ends=True))),
    Rule("no border", "holds samples at the border however far outside they are; more than one "
         "cell off they are 0", _rules(is_outside=_outside(-math.inf, math.inf), margin=64.0)),
    Rule("floor of a negative", "floors a negative position to cell -1, which it takes as 0; it is "
         "held at cell 0", _rules(neighbours=_row_before_first(False))),
    Rule("negative index wraps", "floors a negative position to cell -1, which is the last of the "
         "axis; it is held at cell 0", _rules(neighbours=_row_before_first(True))),
    Rule("negative position cut", "cuts a negative position to cell 0 but keeps its negative "
         "fraction as a weight; it is held at cell 0", _rules(neighbours=_cut_to_zero)),
    Rule("clamp at H", "holds positions at H instead of H - 1: past the last cell's centre it "
         "reads cell H", _rules(neighbours=_row_past_last)),
    # Pooling of cells
    Rule("half to even", "rounds halves to even; here they go away from zero",
         _rules(round_corner=_half_to_even)),
    Rule("halves up", "rounds by floor(x + 0.5): negative halves go up; here "
         "they go away from zero",
         _rules(round_corner=_up)),
    Rule("0.5 added in float32", "adds 0.5 in float32 to round, which makes 1 of 0.49999997",
         _rules(round_corner=_half_added_in_type)),
    Rule("(int)(x + 0.5)", "rounds by cutting x + 0.5, which is wrong for negative coordinates",
         _rules(round_corner=_cut_after_half)),
    Rule("cut, not rounded", "cuts coordinates to whole cells; they are rounded",
         _rules(round_corner=math.trunc)),
    Rule("floored, not rounded", "floors coordinates to whole cells; they are rounded",
         _rules(round_corner=math.floor)),
    Rule("missing +1", "leaves out the + 1 of end - start + 1: the last row and column belong to "
         "the box", _rules(extra=0)),
    Rule("+1 too many", "adds 1 to end - start: the last row and column do not belong to the box",
         _rules(extra=1)),
    Rule("size not held at 1", "does not hold the size of a box at 1 cell at least",
         _rules(shortest=-(2**62))),
    Rule("clamp at H - 1", "clamps bins at H - 1 instead of H: they never reach the last row and "
         "column", _rules(cut=1)),
    Rule("end of bins floored", "rounds the end of a bin down; it is the ceiling",
         _rules(last=math.floor)),
    Rule("edges of bins rounded", "rounds the edges of bins to the nearest; they are floor and "
         "ceiling", _rules(first=_up, last=_up)),
    Rule("edges in float64", "computes the edges of bins in float64",
         _argument("edge_dtype", np.float64, None)),
    Rule("last of equals", "lets the last of equal cells be the argmax; it is the first",
         _rules(pooled=_last_first)),
    Rule("last of equal samples", "lets the last of equal samples be the argmax; it is the first",
         _rules(weighted=_last_first)),
    Rule("maximum from 0", "starts the running maximum at 0: negative values are lost",
         _results(_from_zero)),
    Rule("empty bin lowest", "leaves the lowest float32 in bins without cells; they are 0",
         _empty_bins(LOWEST_FLOAT32)),
    Rule("empty bin -inf", "leaves -inf in bins without cells; they are 0", _empty_bins(-math.inf)),
    Rule("transposed argmax", "returns the argmax as x * H + y; it is y * W + x",
         _argmax(_transposed)),
    Rule("argmax in all channels", "counts the argmax over all images and channels; it is an index "
         "into one map", _argmax(_in_all_channels)),
    Rule("argmax 0 for none", "returns the argmax 0 for bins without one; it is -1",
         _results(_empty_argmax)),
    Rule("transposed bins", "transposes the bins: rows for columns", _results(_transposed_bins)),
    # Crops
    Rule("half-pixel crop", "samples at bin centres over H cells; it is from corner to corner of "
         "H - 1 cells", _rules(position=_GRID_HALF)),
    Rule("H for H - 1", "scales boxes by H; it is H - 1", _rules(position=_OVER_SIZE)),
    Rule("crop_size for crop_size - 1", "divides by crop_size; it is crop_size - 1",
         _rules(position=_OVER_BINS)),
    Rule("no extrapolation", "holds samples at the border; outside they are extrapolation_value",
         _rules(is_outside=_outside(-math.inf, math.inf), neighbours=_held,
                nearest=_round_half_away)),
    Rule("extrapolates late", "holds samples up to one cell off the map; outside they are "
         "extrapolation_value",
         _rules(is_outside=_outside(-1.0, 1.0), neighbours=_held, nearest=_round_half_away)),
    Rule("extrapolation_value ignored", "ignores extrapolation_value: it is 0",
         _option("extrapolation_value", 0.0)),
    Rule("nearest, half to even", "rounds halves to even in nearest sampling; they go away from "
         "zero", _rules(nearest=_half_to_even)),
    Rule("nearest floored", "floors positions in nearest sampling; they are rounded",
         _rules(nearest=math.floor)),
    Rule("last cell not pinned", "leaves the last cell where rounding puts it; it is exactly on "
         "the box's edge", _argument("pinned", False, True)),
    Rule("last cell pinned", "puts the last cell exactly on the box's edge; it is where rounding "
         "puts it", _argument("pinned", True, True)),
)  # fmt: skip
