"""mmcv's RiRoIAlignRotated: ROI align of rotated boxes, whose channels turn with the box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import Array, Floats, Real, Size, as_real
from roipool.reference._roi_align_rotated import RoiAlignRotated


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


@dataclass(frozen=True)
class MmcvRiroiAlignRotated(BoxPooling):
    """As mmcv's ``riroi_align_rotated``, slowly: the maps of each box's image are mixed for it."""

    spatial_scale: float = 1.0
    sampling_ratio: int = 0
    _: KW_ONLY
    num_orientations: int = 8
    clockwise: bool = False

    def of_one(self, box: Floats) -> tuple[int, tuple[int, float], RoiAlignRotated]:
        """Return the image of a box, by how many channels it is turned, and how it is pooled."""
        turn = _orientation(box[5], self.num_orientations, as_real(self.coordinate_dtype))
        alone = RoiAlignRotated(
            [[0, *box[1:]]],
            self.spatial_scale,
            self.sampling_ratio,
            aligned=False,
            clockwise=self.clockwise,
            coordinate_dtype=self.coordinate_dtype,
        )
        return int(box[0]), turn, alone

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return averages."""
        images = np.asarray(features, np.float64)
        pooled = [RoiAlignRotated(np.empty((0, 6))).forward(images, output_size)]
        for box in np.asarray(self.rois, np.float64):
            image, turn, alone = self.of_one(box)
            maps = _mixed(images[image], *turn, self.num_orientations)
            pooled.append(alone.forward(maps[None], output_size))
        return np.concatenate(pooled)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, box by box."""
        upstream, total = np.asarray(grad_output, np.float64), np.zeros(tuple(input_shape))
        for box, gradient in zip(np.asarray(self.rois, np.float64), upstream, strict=True):
            image, turn, alone = self.of_one(box)
            of_mixed = alone.backward(gradient[None], (1, *input_shape[1:]))
            total[image] += _unmixed(of_mixed[0], *turn, self.num_orientations)
        return total
