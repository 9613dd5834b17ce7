"""mmcv's RiRoIAlignRotated: ROI align of rotated boxes, whose channels turn with the box."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from roipool.reference._inputs import Array, DType, Floats, Real, Size, as_real
from roipool.reference._roi_align_rotated import roi_align_rotated, roi_align_rotated_backward


def _orientation(angle: float, count: int, real: Real) -> tuple[int, float]:
    """Return by how many channels an angle turns a box: the whole ones, and the rest.

    Source: mmcv/ops/csrc/common/cuda/riroi_align_rotated_cuda_kernel.cuh.
    """
    place = real(float(real(angle) * real(count)) / (2 * math.pi))
    if not abs(place) <= 2**30:
        return 0, 0.0
    whole = math.floor(place)
    return whole, float(place - real(whole))


def _mixed(planes: Floats, first: int, share: float, count: int) -> Floats:
    """Return channels (C, H, W) of which each is a mix of two of its group."""
    mixed = np.empty_like(planes)
    for channel in range(len(planes)):
        group, number = channel - channel % count, channel % count
        near, far = ((number - first + step) % count for step in (0, 1))
        mixed[channel] = (1 - share) * planes[group + near] + share * planes[group + far]
    return mixed


def _unmixed(gradient: Floats, first: int, share: float, count: int) -> Floats:
    """Return the gradient by the channels of which those were mixed."""
    planes = np.zeros_like(gradient)
    for channel in range(len(gradient)):
        group, number = channel - channel % count, channel % count
        near, far = ((number - first + step) % count for step in (0, 1))
        planes[group + near] += (1 - share) * gradient[channel]
        planes[group + far] += share * gradient[channel]
    return planes


def mmcv_riroi_align_rotated(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    *,
    num_orientations: int = 8,
    clockwise: bool = False,
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As mmcv's ``riroi_align_rotated``, slowly: the maps of each box's image are mixed for it."""
    real, images = as_real(coordinate_dtype), np.asarray(features, np.float64)
    pooled = []
    for box in np.asarray(rois, np.float64):
        turn = _orientation(box[5], num_orientations, real)
        maps = _mixed(images[int(box[0])], *turn, num_orientations)
        pooled.append(
            roi_align_rotated(
                maps[None],
                [[0, *box[1:]]],
                output_size,
                spatial_scale,
                sampling_ratio,
                aligned=False,
                clockwise=clockwise,
                coordinate_dtype=coordinate_dtype,
            )
        )
    none = roi_align_rotated(images, np.empty((0, 6)), output_size)
    return np.concatenate([none, *pooled])


def mmcv_riroi_align_rotated_backward(
    grad_output: Array,
    rois: Array,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    *,
    num_orientations: int = 8,
    clockwise: bool = False,
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As its backward, slowly: the transpose, box by box."""
    real = as_real(coordinate_dtype)
    upstream, boxes = np.asarray(grad_output, np.float64), np.asarray(rois, np.float64)
    total = np.zeros(tuple(input_shape))
    for box, gradient in zip(boxes, upstream, strict=True):
        turn = _orientation(box[5], num_orientations, real)
        of_mixed = roi_align_rotated_backward(
            gradient[None],
            [[0, *box[1:]]],
            (1, *input_shape[1:]),
            spatial_scale,
            sampling_ratio,
            aligned=False,
            clockwise=clockwise,
            coordinate_dtype=coordinate_dtype,
        )
        total[int(box[0])] += _unmixed(of_mixed[0], *turn, num_orientations)
    return total
