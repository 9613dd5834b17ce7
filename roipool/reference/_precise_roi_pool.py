"""Precise ROI pooling: the mean of the bilinearly interpolated map over every bin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Real,
    Scale,
    Size,
    as_pair,
    as_real,
    as_scales,
    to_nchw,
)
from roipool.reference._loops import EMPTY, Averages, Bin, Definition, Sample, slope_of
from roipool.reference._rules import Pixel

Edges = tuple[Fraction, Fraction]  # exact: short bins lose no digits


@lru_cache(maxsize=1024)  # bins of a row share their rows
def edges_of(
    first: float, last: float, p: int, bins: int, scale: float, real: Real
) -> Edges | None:
    """The two edges of a bin in map pixels; None for a side that has no length, or no end."""
    with np.errstate(over="ignore", invalid="ignore"):
        start = real(first) * real(scale)
        length = (real(last) * real(scale) - start) / real(bins)
        if not (np.isfinite(start) and np.isfinite(length) and length > 0):
            return None
        low, high = start + real(p) * length, start + real(p + 1) * length
        return Fraction(float(low)), Fraction(float(high))


def _hat(distance: Fraction) -> Fraction:
    """What a pixel contributes to the surface at some distance from it along an axis."""
    return max(1 - abs(distance), Fraction(0))


def _hat_up_to(distance: Fraction) -> Fraction:
    """The integral of that from the left up to a distance."""
    if distance <= 0:
        return _hat(distance) ** 2 / 2
    return 1 - _hat(distance) ** 2 / 2


@lru_cache(maxsize=1024)
def means(edges: Edges, size: int) -> dict[int, Fraction]:
    """For every pixel near a bin its mean contribution; at a point, for edges that are one."""
    low, high = edges
    near = range(max(math.floor(low), 0), min(math.ceil(high) + 1, size))
    if not high > low:
        return {i: _hat(low - i) for i in near}
    return {i: (_hat_up_to(high - i) - _hat_up_to(low - i)) / (high - low) for i in near}


@lru_cache(maxsize=1024)
def _slopes(edges: Edges, size: int) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    """The derivatives of those means by the lower and by the upper edge."""
    low, high = edges
    if not high > low:
        return {}, {}
    length = high - low
    return (
        {i: (mean - _hat(low - i)) / length for i, mean in means(edges, size).items()},
        {i: (_hat(high - i) - mean) / length for i, mean in means(edges, size).items()},
    )


def _products(rows: dict[int, Fraction], columns: dict[int, Fraction]) -> list[Pixel]:
    return [
        (y, x, float(down * across)) for y, down in rows.items() for x, across in columns.items()
    ]


def _define(scale: Scale, dtype: DType) -> Callable[[Pair, Pair], Definition]:
    """Each bin is one sample, of all the cells that contribute to it."""
    real, (down, across) = as_real(dtype), as_scales(scale)

    def of_maps(bins: Pair, size: Pair) -> Definition:
        def definition(box: Box, ph: int, pw: int) -> Bin:
            rows = edges_of(box[1], box[3], ph, bins[0], down, real)
            columns = edges_of(box[0], box[2], pw, bins[1], across, real)
            if rows is None or columns is None:
                return EMPTY
            pixels = _products(means(rows, size[0]), means(columns, size[1]))
            return Bin([Sample(0, float(rows[0]), float(columns[0]), pixels)], (1, 1))

        return definition

    return of_maps


@dataclass(frozen=True)
class PreciseRoiPool(BoxPooling):
    """As :func:`roipool.precise_roi_pool`, slowly: exact integrals over every bin.

    Source: Jiang et al., "Acquisition of Localization Confidence for Accurate Object Detection",
    2018, equation 3.
    """

    spatial_scale: Scale = 1.0

    @property
    def averages(self) -> Averages:
        """The averages of every bin."""
        return Averages(_define(self.spatial_scale, self.coordinate_dtype), *self.place)

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return averages."""
        return self.averages.forward(features, output_size)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, cell by cell."""
        return self.averages.backward(grad_output, input_shape)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes: by both edges of each bin.

        Source: the paper's equation 4.
        """
        planes, upstream = to_nchw(features, self.layout), to_nchw(grad_output, self.layout)
        bins, (height, width) = as_pair(upstream.shape[2:]), as_pair(planes.shape[2:])
        real, scales = as_real(self.coordinate_dtype), as_scales(self.spatial_scale)
        boxes = self.averages.boxes(len(planes))
        grad = np.zeros((len(boxes), 4))
        for k, n, ph, pw, found in self.averages.every_bin(boxes, bins, (height, width)):
            if not found.samples:
                continue
            x1, y1, x2, y2 = boxes[k][1]
            rows = edges_of(y1, y2, ph, bins[0], scales[0], real)
            columns = edges_of(x1, x2, pw, bins[1], scales[1], real)
            assert rows is not None
            assert columns is not None
            down, across = means(rows, height), means(columns, width)
            by_row, by_column = (upstream[k, :, ph, pw] * float(real(scale)) for scale in scales)
            for edge, slopes in enumerate(_slopes(columns, width)):
                slope = slope_of(by_column, planes[n], _products(down, slopes))
                share = (pw + edge) / bins[1]
                grad[k] += slope * np.array([1 - share, 0, share, 0])
            for edge, slopes in enumerate(_slopes(rows, height)):
                slope = slope_of(by_row, planes[n], _products(slopes, across))
                share = (ph + edge) / bins[0]
                grad[k] += slope * np.array([0, 1 - share, 0, share])
        return grad
