"""The input of every implementation: one map, boxes, options, and a gradient of the output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "Compute", "Options", "Problem", "Unavailable"]

FloatArray = NDArray[np.float32]

# The parts of a result that can be compared, by the names of ``--gradients``.
PARTS = {
    "forward": "pooled values",
    "features": "gradient with respect to the features",
    "boxes": "gradient with respect to the boxes",
}


@dataclass(frozen=True)
class Options:
    """The options of all implementations."""

    # Number of bins: rows, columns; of volumes planes, rows, columns.
    output_size: tuple[int, ...] = (7, 7)
    spatial_scale: float = 1.0  # factor from box coordinates to map cells
    sampling_ratio: int = 0  # samples per bin and axis, for systems that take it; 0 for adaptive


@dataclass(frozen=True)
class Problem:
    """The input of all implementations."""

    features: FloatArray  # maps, (N, C, H, W), or volumes, (N, C, D, H, W)
    # Rows ``[batch_index, x1, y1, x2, y2]`` in image pixels; of rotated boxes ``[batch_index, cx,
    # cy, width, height, angle]``, the angle in radians, counter-clockwise; of volumes
    # ``[batch_index, x1, y1, z1, x2, y2, z2]``.
    rois: FloatArray
    options: Options

    @property
    def rotated(self) -> bool:
        """Whether boxes have an angle."""
        return self.rois.shape[1] == 6

    @property
    def is_volume(self) -> bool:
        """Whether volumes are pooled."""
        return self.features.ndim == 5

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the map, and of bins."""
        return ("plane", "row", "column") if self.is_volume else ("row", "column")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the numbers of a box."""
        if self.rotated:
            return "cx", "cy", "width", "height", "angle"
        return ("x1", "y1", "z1", "x2", "y2", "z2") if self.is_volume else ("x1", "y1", "x2", "y2")

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """Shape of the pooled values: (K, C, PH, PW), or (K, C, PD, PH, PW)."""
        return len(self.rois), self.features.shape[1], *self.options.output_size

    def shape_of(self, part: str) -> tuple[int, ...]:
        """Return the shape of one of `PARTS`."""
        if part == "forward":
            return self.pooled_shape
        if part == "features":
            return self.features.shape
        return len(self.rois), self.rois.shape[1] - 1

    @functools.cached_property
    def largest(self) -> float:
        """The largest magnitude of the map; 0 if nothing is finite."""
        sizes = np.abs(self.features)
        return float(sizes[np.isfinite(sizes)].max(initial=0.0))

    @functools.cached_property
    def grad(self) -> FloatArray:
        """The gradient of the pooled values, normally distributed with a fixed seed.

        A gradient of ones would hide how a box's gradient is distributed among its bins.
        """
        return np.random.default_rng(0).standard_normal(self.pooled_shape, np.float32)


class Unavailable(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised if an implementation does not offer a part; the message begins with "has no".

    The implementation counts as neither run nor failed.
    """


# Computes one of `PARTS`.
Compute = Callable[[Problem, str], Any]
