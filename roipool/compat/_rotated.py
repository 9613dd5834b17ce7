"""Conventions of systems that pool rotated boxes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool.compat import _conventions as conventions


def definition(
    scale: float,
    sampling_ratio: Any,
    aligned: Any,
    clockwise: Any = False,
    *,
    name: str = "sampling_ratio",
) -> Definition:
    """Return ROI align of boxes turned by radians; `name` is the ratio's."""
    turn = -1.0 if check.flag("clockwise", clockwise) else 1.0
    placed = conventions.roi_align_definition(
        scale, sampling_ratio, aligned, name=name, definition="roi_align_rotated"
    )
    return placed._replace(angle_scale=turn)


def boxes_in_degrees(
    rois: Any,
    _: None,
    images: int,
    dtype: np.dtype[Any],
    form: Form,
    *,
    unknown_image: Literal["error", "zero"] = "error",
) -> Regions:
    """Return boxes of shape (K, 6) with their angles in radians, as detectron2 and MXNet do."""
    regions = conventions.numbered_boxes(
        rois, None, images, dtype, form, unknown_image=unknown_image
    )
    return regions._replace(boxes=in_radians(regions.boxes))


def in_radians(boxes: Array) -> Array:
    """Return boxes with their last column, the angle in degrees, in radians.

    The product is one of float64, which is then rounded to the type of the boxes.
    """
    xp = conventions.library_of(boxes).xp()
    with np.errstate(over="ignore", invalid="ignore"):
        radians = check.cast(
            check.cast(boxes, check.FLOAT64) * np.pi / 180.0, check.dtype_of(boxes)
        )
    is_angle = xp.arange(boxes.shape[1]) == boxes.shape[1] - 1
    turned: Array = xp.where(is_angle, radians, boxes)
    return turned
