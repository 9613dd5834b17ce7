"""Forms of boxes: functions from a case to the arguments that hold its boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from roipool.systems.case import Case, in_layout
from roipool.systems.row import FloatArray

PER_IMAGE = ("one array per image",)  # forms of systems that take one table per image


def in_any_form(case: Case) -> dict[str, Any]:
    """Return boxes in the case's form, as roipool's operations take them."""
    if case.form == "batch indices":
        return with_indices(case)
    if case.form == "nested lists":
        return {"rois": case.rois.tolist()}
    if case.form == "one array per image":
        return {"rois": [case.rois[case.images == n, 1:] for n in range(len(case.maps))]}
    return {"rois": case.rois}


def with_indices(case: Case) -> dict[str, Any]:
    """Return boxes x1, y1, x2, y2, and batch indices."""
    return {"rois": case.rois[:, 1:], "batch_indices": case.images}


def with_offsets(case: Case) -> dict[str, Any]:
    """Return boxes in the case's form, with an offset for each bin, which a few bins lack."""
    return {**in_any_form(case), "offsets": in_layout(offsets_of(case), case.layout)}


def unmoved(form: Callable[[Case], dict[str, Any]]) -> Callable[[Case], dict[str, Any]]:
    """Return a form of boxes with offsets as one that moves no bin."""

    def still(case: Case) -> dict[str, Any]:
        given = form(case)
        return {**given, "offsets": np.zeros_like(given["offsets"])}

    return still


def with_offsets_of_parts(case: Case) -> dict[str, Any]:
    """Return boxes in the case's form, with offsets for parts of each, for all channels alike.

    There are as many parts as bins, fewer or more, by the case's options.
    """
    more = int(np.sum(case.options["samples"])) % 4 - 2
    offsets = offsets_of(case, (2, *(max(1, size + more) for size in case.size)))
    return {**in_any_form(case), "offsets": in_layout(offsets, case.layout)}


def offsets_of(case: Case, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return offsets that follow from the boxes: to halves, or any; usually (2, rows, columns)."""
    x1, y1, x2, y2 = case.rois[:, 1:].T
    shape = shape or (2, *case.size)
    number = np.arange(math.prod(shape))
    with np.errstate(all="ignore"):
        by_place = (7.3 * x1 + 1.9 * y1 + 0.7 * x2 + 3.1 * y2)[:, None]
        offsets = (by_place * (1 + number % 7) + 0.37 * number) % 4 - 2
        offsets = np.where(by_place % 3 < 1, np.round(2 * offsets) / 2, offsets)
    offsets = np.where(offsets > 1.99, np.nan, offsets)
    return np.asarray(offsets.reshape(len(case.rois), *shape))


def y_first(case: Case) -> dict[str, Any]:
    """Return boxes y1, x1, y2, x2, and batch indices."""
    return {"rois": case.rois[:, [2, 1, 4, 3]], "batch_indices": case.images}


def fractions(case: Case) -> dict[str, Any]:
    """Return boxes for crops: fractions of the map, with 0 at the first cell and 1 at the last."""
    scale = np.float32(case.options.get("spatial_scale", 1.0))
    down, across = last_cells(case)
    boxes = case.rois[:, [2, 1, 4, 3]] * scale / np.array([down, across, down, across])
    return {"boxes": boxes, "box_indices": case.images}


def last_cells(case: Case) -> tuple[np.float32, np.float32]:
    """Return the last row and column as divisors, at least 1."""
    height, width = case.maps.shape[2:]
    return np.float32(max(height - 1, 1)), np.float32(max(width - 1, 1))


def of_fractions(case: Case, gradient: FloatArray) -> FloatArray:
    """Convert the gradient with respect to `fractions` to pixels."""
    scale = np.float32(case.options["spatial_scale"])
    down, across = last_cells(case)
    pixels = gradient[:, [1, 0, 3, 2]] * scale
    return np.asarray(pixels / np.array([across, down, across, down], np.float32))


def turned(case: Case) -> dict[str, Any]:
    """Return rotated boxes in the case's form, by multiples of an eighth turn or by any angle."""
    if case.rois.shape[1] == 6:
        return in_any_form(case)
    x1, y1, x2, y2 = case.rois[:, 1:].T
    unit = 180 / np.pi if case.options.get("angle_unit") == "degrees" else 1.0
    with np.errstate(all="ignore"):
        by_place = 7.3 * x1 + 1.9 * y2
        angle = np.where(by_place % 3 < 1, np.round(by_place) % 8 * (np.pi / 4), by_place % 9)
        columns = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, angle * unit)
    rois = np.column_stack([case.rois[:, 0], *columns])
    return in_any_form(replace(case, rois=rois))


def with_angle(case: Case) -> dict[str, Any]:
    """Return boxes with an angle, 0 if the case's have none."""
    if case.rois.shape[1] == 6:
        return {"rois": case.rois}
    image, x1, y1, x2, y2 = case.rois.T
    half, none = np.float32(0.5), np.zeros_like(x1)
    with np.errstate(all="ignore"):
        centres = (x1 + x2) * half, (y1 + y2) * half
        return {"rois": np.stack([image, *centres, x2 - x1, y2 - y1, none], axis=1)}


def with_angle_in_degrees(case: Case) -> dict[str, Any]:
    """Return boxes with an angle, that of the case in radians, in degrees."""
    rois = with_angle(case)["rois"].copy()
    rois[:, 5] = np.rad2deg(rois[:, 5])
    return {"rois": rois}


def of_angle(case: Case, gradient: FloatArray) -> FloatArray:
    """Convert the gradient with respect to `with_angle` to pixels."""
    if case.rois.shape[1] == 6:
        return gradient
    by_centre, by_side = gradient[:, :2] / np.float32(2), gradient[:, 2:4]
    return np.concatenate([by_centre - by_side, by_centre + by_side], axis=1)
