"""detectron2's operators of rotated boxes, which its layer in `roipool.compat.detectron2` calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roipool import _boxes
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat import _rotated

FORM = _boxes.ROTATED._replace(features="input", read=_rotated.boxes_in_degrees)


@for_every_array
def roi_align_rotated(
    input: ArrayT,
    rois: Any,
    output_size: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> ArrayT:
    """Return what detectron2's layer with these options returns."""
    with Call(FORM, input=input, rois=rois) as call:
        definition = _align(spatial_scale, sampling_ratio)
        return call.averages(call.request(definition, output_size))


@for_every_array
def roi_align_rotated_backward(
    grad_output: ArrayT,
    rois: Any,
    input_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> ArrayT:
    """Return the gradient of :func:`roi_align_rotated` with respect to the maps."""
    with Call(FORM, grad_output=grad_output, rois=rois) as call:
        definition = _align(spatial_scale, sampling_ratio)
        return call.average_backward(*call.checked_backward(definition, input_shape))


def _align(spatial_scale: float, sampling_ratio: int) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    return _rotated.definition(scale, sampling_ratio, True)
