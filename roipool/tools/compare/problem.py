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

# What can be compared, by the names of ``--gradients``.
PARTS = {
    "forward": "pooled values",
    "features": "gradient with respect to the features",
    "boxes": "gradient with respect to the boxes",
}


@dataclass(frozen=True)
class Options:
    """What all implementations are asked to compute.

    Attributes
    ----------
    output_size : tuple of int
        Rows and columns of every pooled grid.
    spatial_scale : float
        What box coordinates are multiplied by to land on the map.
    sampling_ratio : int
        Samples per bin and axis for the systems that have a choice; 0 lets the box decide.
    """

    output_size: tuple[int, int] = (7, 7)
    spatial_scale: float = 1.0
    sampling_ratio: int = 0


@dataclass(frozen=True)
class Problem:
    """One question to all implementations.

    Attributes
    ----------
    features : (N, C, H, W) float32 ndarray
        The map.
    rois : (K, 5) or (K, 6) float32 ndarray
        Rows ``[batch_index, x1, y1, x2, y2]`` in image pixels; of rotated boxes
        ``[batch_index, cx, cy, width, height, angle]``, the angle in radians, counter-clockwise.
    options : Options
        What to compute.
    """

    features: FloatArray
    rois: FloatArray
    options: Options

    @property
    def rotated(self) -> bool:
        """Whether boxes have an angle."""
        return self.rois.shape[1] == 6

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """Shape of the pooled values: (K, C, PH, PW)."""
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
        """The gradient of the pooled values that gradients start from: the same every time.

        It is drawn from a normal distribution: with ones, a mean over a box would hide how its
        bins share it out.
        """
        return np.random.default_rng(0).standard_normal(self.pooled_shape, np.float32)


class Unavailable(Exception):  # noqa: N818 - it is an answer, not an error
    """An implementation does not have what is asked; the message says what, beginning with "has".

    It neither ran nor failed.
    """


# Computes one of `PARTS`.
Compute = Callable[[Problem, str], Any]
