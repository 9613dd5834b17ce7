"""Ways to change an oracle: what the rows of `rules` are made of.

Each function that returns a `Vary` takes an oracle to one with one thing changed, or to None where
that has no meaning for its operation.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from roipool import reference
from roipool.reference._interpolation import _round_half_away
from roipool.reference._loops import Bin, Sample
from roipool.reference._roi_align import _neighbours, _samples_per_bin
from roipool.verification.call import Results, run
from roipool.verification.case import Case
from roipool.verification.oracle import Oracle

Vary: TypeAlias = Callable[[Oracle], Oracle | None]


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


def _negated(result: str) -> Vary:
    """Turn the sign of a gradient; None for oracles without it."""

    def vary(oracle: Oracle) -> Oracle | None:
        operation = oracle.operation
        if not {"gradient": operation.backward, "box_gradient": operation.box_gradient}[result]:
            return None
        negated = _results(
            lambda case, found: {
                name: -array if name == result else array for name, array in found.items()
            }
        )
        return negated(oracle)

    return vary


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


def side_with(
    *, shift: float | None = None, extra: float = 0.0, pixels: float = 0.0,
    least: bool | None = None, round_corner: Callable[[Any], int] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Return the start and length of a side of ROI align, with something else about it.

    `shift` is in cells, by default half a cell if aligned; the side is `extra` cells longer, and
    ends so many `pixels` later; `least` says whether it is at least a cell long, by default if not
    aligned.
    """

    def side(first: float, last: float, scale: float, aligned: bool, real: Any) -> Any:
        start, end = real(first) * real(scale), (real(last) + real(pixels)) * real(scale)
        if not (np.isfinite(start) and np.isfinite(end)):
            return real(math.nan), real(math.nan), False
        if round_corner is not None:
            start, end = real(round_corner(start)), real(round_corner(end))
        offset = real((0.5 if aligned else 0.0) if shift is None else shift)
        start, end = start - offset, end - offset
        length = end - start + real(extra)
        if (not aligned if least is None else least) and length < 1:
            return start, real(1), True
        return start, length, False

    return side


def shifted(shift: float, *, in_pixels: bool, in_place: bool) -> Vary:
    """Shift boxes towards 0 by so many cells, or by so many pixels before they are scaled.

    The shift is added to what is right or, `in_place`, stands for the half cell of aligned boxes.
    """

    def side(first: float, last: float, scale: float, aligned: bool, real: Any) -> Any:
        half, more = (0.5 if aligned else 0.0), shift
        if in_place:
            half, more = 0.0, (shift if aligned else 0.0)
        pixels, cells = (more, half) if in_pixels else (0.0, half + more)
        start, end = ((real(at) - real(pixels)) * real(scale) - real(cells) for at in (first, last))
        if not (np.isfinite(start) and np.isfinite(end)):
            return real(math.nan), real(math.nan), False
        if not aligned and end - start < 1:
            return start, real(1), True
        return start, end - start, False

    def moved(case: Case) -> Case:
        scale = 1.0 if in_pixels else case.options.get("spatial_scale", 1.0)
        table = case.rois.copy()
        if scale:
            table[:, 1:5] -= shift / scale
        return replace(case, rois=table)

    def vary(oracle: Oracle) -> Oracle | None:
        return _rules(side=side)(oracle) or (None if in_place else _case(moved)(oracle))

    return vary


def _ends(first: Callable[..., Any] | None, last: Callable[..., Any] | None) -> Vary:
    """Round one end of a box, or both, to cells, each in its own way."""

    def change(case: Case) -> Case:
        scale, table = case.options.get("spatial_scale", 1.0), case.rois.copy()
        with np.errstate(all="ignore"):
            table[:, 1:5] = table[:, 1:5].astype(case.real) * case.real(scale)
        for columns, rounded in ((slice(1, 3), first), (slice(3, 5), last)):
            if rounded is not None:
                table[:, columns] = rounded(table[:, columns])
        options = {**case.options, "spatial_scale": 1.0} if "spatial_scale" in case.options else {}
        return replace(case, rois=table, options=options or case.options)

    return _case(change)


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


def _always(number: int) -> Callable[..., int]:
    return lambda length, bins, ratio, real, count_real: number


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


def half_to_even(value: Any) -> int:
    """Return the nearest integer, of two the even one."""
    return int(np.rint(value))


def _up(value: Any) -> int:
    return math.floor(float(value) + 0.5)


def _half_added_in_type(value: Any) -> int:
    magnitude = math.floor(abs(value) + type(value)(0.5))
    return -magnitude if value < 0 else magnitude


def _cut_after_half(value: Any) -> int:
    return math.trunc(float(value) + 0.5)


def _nan_spreads(oracle: Oracle) -> Oracle | None:
    """Let a NaN win the maximum of its bin; None for averages, where it does so anyway."""
    operation = oracle.operation
    if operation.bin_value not in ("cell", "sample"):
        return None
    forward = operation._replace(backward="", box_gradient="")

    def finish(case: Case, found: Results) -> Results:
        marked = replace(
            oracle.prepare(case), maps=np.isnan(case.maps).astype(np.float64), dtype="float64",
            layout="NCHW", form="table", storage="plain",
        )  # fmt: skip
        reached = run(marked, reference, forward, coordinate_dtype=case.real)
        changed, is_nan = oracle.finish(case, found), reached["pooled"] > 0
        changed = {**changed, "pooled": np.where(is_nan, math.nan, changed["pooled"])}
        if "argmax" in changed and operation.bin_value == "cell":
            changed["argmax"] = np.where(is_nan, reached["argmax"], changed["argmax"])
        return changed

    return oracle._replace(finish=finish)


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
