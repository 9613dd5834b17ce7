"""Mutations of an oracle, from which `rules` is built.

A `Vary` function returns an oracle with one thing changed, or None if the change does not apply to
the operation.
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
from roipool.systems.case import Case
from roipool.verification.call import Results, run

Vary: TypeAlias = Callable[[Oracle], Oracle | None]


# ---- Ways to change an oracle


def by_rule(samples: str, **changes: Any) -> Vary:
    """Change fields of the oracle's rules, if its samples are of one of the kinds `samples`."""

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
    """Pass an argument to the oracle's function; `default` is its usual value."""

    def vary(oracle: Oracle) -> Oracle | None:
        parameters = inspect.signature(getattr(reference, oracle.operation.forward)).parameters
        if name not in parameters or oracle.operation.fixed.get(name, default) == value:
            return None
        return _with_fixed(oracle, **{name: value})

    return vary


def change_case(change: Callable[[Case], Case]) -> Vary:
    """Pass a changed case to the oracle."""
    return lambda oracle: oracle._replace(prepare=lambda case: oracle.prepare(change(case)))


def option(name: str, value: Any) -> Vary:
    """Pass another value of an option, if the operation has the option."""

    def change(case: Case) -> Case:
        if name not in case.options:
            return case
        return replace(case, options={**case.options, name: value})

    return change_case(change)


def change_results(change: Callable[[Case, Results], Results]) -> Vary:
    """Change the oracle's results."""
    return lambda oracle: oracle._replace(
        finish=lambda case, results: change(case, oracle.finish(case, results))
    )


def negated(result: str) -> Vary:
    """Reverse the sign of a gradient; None for oracles without it."""

    def vary(oracle: Oracle) -> Oracle | None:
        operation = oracle.operation
        if not {"gradient": operation.backward, "box_gradient": operation.box_gradient}[result]:
            return None
        change = change_results(
            lambda case, results: {
                name: -array if name == result else array for name, array in results.items()
            }
        )
        return change(oracle)

    return vary


# ---- Boxes


def finite(nan: float, positive: float, negative: float) -> Vary:
    """Replace coordinates that are not finite by the values of a conversion to integers."""
    return change_case(
        lambda case: replace(
            case, rois=np.nan_to_num(case.rois, nan=nan, posinf=positive, neginf=negative)
        )
    )


# These three also change the problems of `roipool compare`, whose boxes have the same name.
def y_first(case: Any) -> Any:
    """Swap x and y of boxes."""
    return replace(case, rois=case.rois[:, [0, 2, 1, 4, 3]])


def first_image(case: Any) -> Any:
    """Assign every box to the first image."""
    table = case.rois.copy()
    table[:, 0] = 0
    return replace(case, rois=table)


def sides_as_corners(case: Any) -> Any:
    """Interpret the last two numbers of boxes as width and height."""
    table = case.rois.copy()
    table[:, 3:5] += table[:, 1:3]
    return replace(case, rois=table)


def shifted(shift: float, *, in_pixels: bool, in_place: bool) -> Vary:
    """Shift boxes towards 0, by cells or by pixels before scaling.

    The shift is added to the right one or, with `in_place`, replaces the half cell of aligned
    boxes.
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
    """Round one end or both ends of a box to cells by the given functions."""

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
    """Reverse the angle of boxes."""
    if "clockwise" not in case.options:
        return case
    return replace(case, options={**case.options, "clockwise": not case.options["clockwise"]})


# ---- Pooling, cells and their argmax


def nan_spreads(oracle: Oracle) -> Oracle | None:
    """Let NaN win the maximum of a bin; None for averages, where it always spreads."""
    operation = oracle.operation
    if operation.bin_value not in ("cell", "sample"):
        return None
    forward = operation._replace(backward="", box_gradient="")

    def finish(case: Case, results: Results) -> Results:
        marked = replace(
            oracle.prepare(case),
            maps=np.isnan(case.maps).astype(np.float64),
            dtype="float64",
            layout="NCHW",
            form="table",
            storage="plain",
        )
        reached = run(marked, reference, forward, coordinate_dtype=case.real)
        changed, is_nan = oracle.finish(case, results), reached["pooled"] > 0
        changed = {**changed, "pooled": np.where(is_nan, math.nan, changed["pooled"])}
        if "argmax" in changed and operation.bin_value == "cell":
            changed["argmax"] = np.where(is_nan, reached["argmax"], changed["argmax"])
        return changed

    return oracle._replace(finish=finish)


def change_argmax(change: Callable[[Case, Any], Any]) -> Vary:
    """Change the argmax of bins that have one."""

    def changed(case: Case, results: Results) -> Results:
        if "argmax" not in results:
            return results
        argmax = results["argmax"]
        return {**results, "argmax": np.where(argmax < 0, argmax, change(case, argmax))}

    return change_results(changed)


def transposed(case: Case, argmax: Any) -> Any:
    """Count the argmax column by column."""
    height, width = case.maps.shape[2:]
    return argmax % max(width, 1) * height + argmax // max(width, 1)


def in_all_channels(case: Case, argmax: Any) -> Any:
    """Turn an argmax into an index into the whole batch."""
    _, channels, height, width = case.maps.shape
    planes = np.arange(channels)[:, None, None] + channels * case.images[:, None, None, None]
    return argmax + planes * height * width


def empty_bins(value: float) -> Vary:
    """Set the value of bins without cells."""

    def changed(case: Case, results: Results) -> Results:
        if "argmax" not in results:
            return results
        empty = (results["argmax"] == -1) & (results["pooled"] == 0)
        return {**results, "pooled": np.where(empty, value, results["pooled"])}

    return change_results(changed)


def empty_argmax(case: Case, results: Results) -> Results:
    """Set the argmax of bins without a maximum to 0."""
    if "argmax" not in results:
        return results
    return {**results, "argmax": np.maximum(results["argmax"], 0)}


def from_zero(case: Case, results: Results) -> Results:
    """Start the running maximum at 0."""
    changed = {**results, "pooled": np.maximum(results["pooled"], 0)}
    if "argmax" in results:
        changed["argmax"] = np.where(results["pooled"] > 0, results["argmax"], -1)
    return changed


def transposed_bins(case: Case, results: Results) -> Results:
    """Transpose rows and columns of bins."""
    pooled = results["pooled"]
    return {**results, "pooled": np.swapaxes(pooled, 2, 3).reshape(pooled.shape)}
