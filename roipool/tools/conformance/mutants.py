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
from roipool.systems import Oracle
from roipool.verification.call import Results, run
from roipool.verification.case import Case

Vary: TypeAlias = Callable[[Oracle], Oracle | None]


# ---- Ways to change an oracle


def by_rule(samples: str, **changes: Any) -> Vary:
    """Exchange fields of the oracle's rules, if a bin reads one of these kinds of `samples`."""

    def vary(oracle: Oracle) -> Oracle | None:
        parameters = inspect.signature(getattr(reference, oracle.operation.forward)).parameters
        if "rules" not in parameters:
            return None
        rules = oracle.operation.fixed.get("rules", parameters["rules"].default)
        changed = replace(rules, **changes)
        if rules.samples not in samples.split() or changed == rules:
            return None
        return _with_fixed(oracle, rules=changed)

    return vary


def _with_fixed(oracle: Oracle, **fixed: Any) -> Oracle:
    operation = oracle.operation
    return oracle._replace(operation=operation._replace(fixed={**operation.fixed, **fixed}))


def argument(name: str, value: Any, default: Any) -> Vary:
    """Give the oracle's function an argument; `default` is what it is otherwise."""

    def vary(oracle: Oracle) -> Oracle | None:
        parameters = inspect.signature(getattr(reference, oracle.operation.forward)).parameters
        if name not in parameters or oracle.operation.fixed.get(name, default) == value:
            return None
        return _with_fixed(oracle, **{name: value})

    return vary


def change_case(change: Callable[[Case], Case]) -> Vary:
    """Give the oracle another case."""
    return lambda oracle: oracle._replace(prepare=lambda case: oracle.prepare(change(case)))


def option(name: str, value: Any) -> Vary:
    """Give the oracle another value of an option, where the operation has it."""

    def change(case: Case) -> Case:
        if name not in case.options:
            return case
        return replace(case, options={**case.options, name: value})

    return change_case(change)


def change_results(change: Callable[[Case, Results], Results]) -> Vary:
    """Change what the oracle returns."""
    return lambda oracle: oracle._replace(
        finish=lambda case, found: change(case, oracle.finish(case, found))
    )


def negated(result: str) -> Vary:
    """Turn the sign of a gradient; None for oracles without it."""

    def vary(oracle: Oracle) -> Oracle | None:
        operation = oracle.operation
        if not {"gradient": operation.backward, "box_gradient": operation.box_gradient}[result]:
            return None
        change = change_results(
            lambda case, found: {
                name: -array if name == result else array for name, array in found.items()
            }
        )
        return change(oracle)

    return vary


# ---- Boxes


def finite(nan: float, positive: float, negative: float) -> Vary:
    """Let coordinates that are not finite be what a conversion to an integer makes of them."""
    return change_case(
        lambda case: replace(
            case, rois=np.nan_to_num(case.rois, nan=nan, posinf=positive, neginf=negative)
        )
    )


def columns(order: list[int]) -> Vary:
    """Give the oracle boxes whose columns are in another order."""
    return change_case(lambda case: replace(case, rois=case.rois[:, order]))


def first_image(case: Case) -> Case:
    """Put every box on the first image."""
    table = case.rois.copy()
    table[:, 0] = 0
    return replace(case, rois=table)


def sides_as_corners(case: Case) -> Case:
    """Take the last two numbers of boxes for width and height."""
    table = case.rois.copy()
    table[:, 3:5] += table[:, 1:3]
    return replace(case, rois=table)


def shifted(shift: float, *, in_pixels: bool, in_place: bool) -> Vary:
    """Shift boxes towards 0 by so many cells, or by so many pixels before they are scaled.

    The shift is added to what is right or, `in_place`, stands for the half cell of aligned boxes.
    """
    if in_place:
        return by_rule("grid", shift=(0.0, shift), shift_unit="pixel" if in_pixels else "cell")

    def moved(case: Case) -> Case:
        scale = 1.0 if in_pixels else case.options.get("spatial_scale", 1.0)
        table = case.rois.copy()
        if scale:
            table[:, 1:5] -= shift / scale
        return replace(case, rois=table)

    def vary(oracle: Oracle) -> Oracle | None:
        both_shifts = by_rule("grid", shift=(shift, 0.5 + shift))
        return (None if in_pixels else both_shifts(oracle)) or change_case(moved)(oracle)

    return vary


def ends(first: Callable[..., Any] | None, last: Callable[..., Any] | None) -> Vary:
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

    return change_case(change)


def turned(case: Case) -> Case:
    """Turn the other way."""
    if "clockwise" not in case.options:
        return case
    return replace(case, options={**case.options, "clockwise": not case.options["clockwise"]})


# ---- Pooling, cells and their argmax


def nan_spreads(oracle: Oracle) -> Oracle | None:
    """Let a NaN win the maximum of its bin; None for averages, where it does so anyway."""
    operation = oracle.operation
    if operation.bin_value not in ("cell", "sample"):
        return None
    forward = operation._replace(backward="", box_gradient="")

    def finish(case: Case, found: Results) -> Results:
        marked = replace(
            oracle.prepare(case),
            maps=np.isnan(case.maps).astype(np.float64),
            dtype="float64",
            layout="NCHW",
            form="table",
            storage="plain",
        )
        reached = run(marked, reference, forward, coordinate_dtype=case.real)
        changed, is_nan = oracle.finish(case, found), reached["pooled"] > 0
        changed = {**changed, "pooled": np.where(is_nan, math.nan, changed["pooled"])}
        if "argmax" in changed and operation.bin_value == "cell":
            changed["argmax"] = np.where(is_nan, reached["argmax"], changed["argmax"])
        return changed

    return oracle._replace(finish=finish)


def change_argmax(change: Callable[[Case, Any], Any]) -> Vary:
    """Change the argmax where there is one."""

    def results(case: Case, found: Results) -> Results:
        if "argmax" not in found:
            return found
        argmax = found["argmax"]
        return {**found, "argmax": np.where(argmax < 0, argmax, change(case, argmax))}

    return change_results(results)


def transposed(case: Case, argmax: Any) -> Any:
    """Count columns first."""
    height, width = case.maps.shape[2:]
    return argmax % max(width, 1) * height + argmax // max(width, 1)


def in_all_channels(case: Case, argmax: Any) -> Any:
    """Count over all images and channels."""
    _, channels, height, width = case.maps.shape
    planes = np.arange(channels)[:, None, None] + channels * case.images[:, None, None, None]
    return argmax + planes * height * width


def empty_bins(value: float) -> Vary:
    """Give bins without cells a value."""

    def results(case: Case, found: Results) -> Results:
        if "argmax" not in found:
            return found
        empty = (found["argmax"] == -1) & (found["pooled"] == 0)
        return {**found, "pooled": np.where(empty, value, found["pooled"])}

    return change_results(results)


def empty_argmax(case: Case, found: Results) -> Results:
    """Give bins without a maximum the argmax 0."""
    if "argmax" not in found:
        return found
    return {**found, "argmax": np.maximum(found["argmax"], 0)}


def from_zero(case: Case, found: Results) -> Results:
    """Lose negative maxima."""
    changed = {**found, "pooled": np.maximum(found["pooled"], 0)}
    if "argmax" in found:
        changed["argmax"] = np.where(found["pooled"] > 0, found["argmax"], -1)
    return changed


def transposed_bins(case: Case, found: Results) -> Results:
    """Transpose rows and columns of bins."""
    pooled = found["pooled"]
    return {**found, "pooled": np.swapaxes(pooled, 2, 3).reshape(pooled.shape)}
