"""Cases for operations on pyramids: the rows of a case's maps are divided among the levels.

So the gradients of all levels together have the shape of the case's maps, and the relations that
hold for one map can be tested on a pyramid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool import reference
from roipool.systems.case import Array, Case, dtypes


def heights(rows: int) -> tuple[int, ...]:
    """Return the heights of a pyramid's three maps, each at least half as high as the previous."""
    if rows < 3:
        return (rows,)
    last, middle = -(-rows // 7), -(-2 * rows // 7)
    return rows - middle - last, middle, last


def divided(maps: Array, layout: str) -> list[Array]:
    """Divide the rows of maps among the levels of a pyramid."""
    axis = _rows_axis(layout)
    return np.split(maps, np.cumsum(heights(maps.shape[axis]))[:-1], axis)


def joined(maps: Any, layout: str) -> Any:
    """Join the maps of a pyramid (a list or dict) again; return any other value unchanged."""
    if isinstance(maps, Mapping):
        maps = list(maps.values())
    return np.concatenate(maps, _rows_axis(layout)) if isinstance(maps, list) else maps


def _rows_axis(layout: str) -> int:
    return 1 if layout == "NHWC" else 2


def by_name(values: Sequence[Any]) -> dict[str, Any]:
    """Return values of each level as a dict with the names of torchvision's maps."""
    return {str(level): value for level, value in enumerate(values)}


# ---- Arguments


def scales_of(case: Case) -> list[Any]:
    """Return the scale of each map, or those of its axes, each half of the previous."""
    count = len(heights(case.maps.shape[2]))
    first = case.scale
    if case.options.get("by_size"):  # levels are counted from powers of two only
        first = 2.0 ** round(math.log2(case.options["spatial_scale"]))
    every = range(count)
    if isinstance(first, tuple):
        rows, columns = first
        return [(rows / 2**level, columns / 2**level) for level in every]
    return [first / 2**level for level in every]


def given_levels(case: Case) -> NDArray[np.int64]:
    """Return a pseudorandom level for each box, determined by the box alone."""
    count = len(heights(case.maps.shape[2]))
    with np.errstate(all="ignore"):
        place = np.floor(np.abs(7.3 * case.rois[:, 1] + 1.9 * case.rois[:, 4])) % count
    return np.nan_to_num(place).astype(np.int64)


def tables_of_images(case: Case) -> list[Array]:
    """Return the boxes of each image, without the batch index."""
    return [case.rois[case.images == n, 1:] for n in range(len(case.maps))]


def picture_of(case: Case) -> tuple[int, int]:
    """Return the height and width of images for which the first map has the case's scale."""
    first, *_ = heights(case.maps.shape[2])
    height = max(1, round(first / case.options["spatial_scale"]))
    scale = 2.0 ** round(math.log2(max(first, 1) / height))  # which widths have, too
    return height, max(1, round(case.maps.shape[3] / scale))


# ---- Cases for the oracle: levels and scales, as each system defines them


def with_levels_by_area(case: Case) -> Case:
    """Return a case with the levels of `multilevel_roi_align`."""
    scales = scales_of(case)
    if not case.options["by_size"]:
        return _with(case, scales, given_levels(case))
    first = -round(math.log2(scales[0]))
    with np.errstate(over="ignore"):
        boxes = case.rois[:, 1:].astype(case.real)
    last = first + len(scales) - 1
    return _with(case, scales, reference.assign_levels(boxes, first, last))


def as_torchvision(case: Case) -> Case:
    """Return a case with the scales and levels of torchvision's pooler."""
    picture, _ = picture_of(case)
    map_heights = heights(case.maps.shape[2])
    scales = [2.0 ** round(math.log2(height / picture)) for height in map_heights]
    size, level = case.options["canonical_scale"], case.options["canonical_level"]
    levels = _by_logarithm(case, scales, size, level, to_level=1e-6)
    return _with(case, scales, levels, aligned=False)


def as_detectron2(case: Case) -> Case:
    """Return a case with the levels of detectron2's pooler, and boxes rounded to the maps' type."""
    scales = scales_of(case)
    size, level = case.options["canonical_box_size"], case.options["canonical_level"]
    levels = _by_logarithm(case, scales, size, level, to_ratio=1e-8)
    aligned = case.options.get("pooler_type") == "ROIAlignV2"
    return _with(rounded_to_maps(case), scales, levels, aligned=aligned)


def rounded_to_maps(case: Case) -> Case:
    """Return a case whose boxes are rounded to the maps' type."""
    table = case.rois.copy()
    with np.errstate(over="ignore"):
        table[:, 1:] = table[:, 1:].astype(dtypes()[case.dtype])
    return replace(case, rois=table)


def _with(case: Case, scales: list[float], levels: Array, **more: Any) -> Case:
    options = {**case.options, "spatial_scales": scales, "levels": levels, **more}
    return replace(case, options=options)


def _by_logarithm(
    case: Case,
    scales: list[float],
    size: float,
    level: int,
    to_ratio: float = 0.0,
    to_level: float = 0.0,
) -> Array:
    """Return floor(level + log2(side / size)) minus the first level; -1 for NaN."""
    if len(scales) == 1:
        return np.zeros(len(case.rois), np.int64)
    first, last = (-round(math.log2(scales[end])) for end in (0, -1))
    real = case.real
    with np.errstate(all="ignore"):
        x1, y1, x2, y2 = case.rois[:, 1:].astype(real).T
        ratio = np.sqrt((x2 - x1) * (y2 - y1)) / real(size) + real(to_ratio)
        exact = np.floor(np.log2(ratio) + real(level) + real(to_level))
        index = np.minimum(np.maximum(exact, real(first)), real(last)) - real(first)
    return np.where(np.isnan(exact), -1, np.nan_to_num(index)).astype(np.int64)
