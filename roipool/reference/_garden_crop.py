"""The crops of TensorFlow's model garden: one sample per bin, extrapolated ahead of the map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from roipool.reference._bins import Line, crossed
from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import Array, Box, Floats, Pair, Real, Size, as_real
from roipool.reference._loops import Averages, Bin, Definition, Motion, Sample, Slopes
from roipool.reference._multilevel_roi_align import AveragesOfPyramid
from roipool.reference._rules import Neighbours, Pixel, Rules, slopes

_RULES = Rules(samples="ends", border="hold all")


def _cells(at: float, size: int, real: Real) -> Neighbours:
    """The two cells of a position, held inside the map, and their weights, which are not."""
    cell = min(max(math.floor(at), 0), size - 1)
    if cell == size - 1:
        return cell, cell, 1.0, 0.0
    fraction = real(at) - real(cell)
    return cell, cell + 1, float(real(1) - fraction), float(fraction)


def _line(
    ends: tuple[float, float], p: int, bins: int, size: int, offset: float, real: Real
) -> Line:
    """The sample of bin `p` of a side whose ends are in cells."""
    start = real(ends[0])
    length = real(ends[1]) - start
    at = start + (real(p) + real(offset)) * length / real(bins)
    if size == 0 or not np.isfinite(at):
        return Line(1, [], float, 1)
    first, second, near, far = _cells(float(at), size, real)
    return Line(1, [(0, float(at), [(first, near), (second, far)])], float, 1)


def _read_of(first_map: Pair, level: int) -> Pair:
    """The rows and columns of a map that are read, of those of the first map."""
    rows, columns = (max(size >> level, min(size, 1)) for size in first_map)
    return rows, columns


@dataclass(frozen=True)
class GardenCrop(BoxPooling):
    """The crops of boxes from one map, of which so many rows and columns are read."""

    spatial_scale: float
    _: KW_ONLY
    sample_offset: float
    read_size: Pair

    @property
    def averages(self) -> Averages:
        """The averages of the one sample of every bin."""
        return Averages(self.define, *self.place)

    def define(self, bins: Pair, _: Pair) -> Definition:
        """Return the bins of boxes on a map."""
        real, size, offset = as_real(self.coordinate_dtype), self.read_size, self.sample_offset

        def definition(box: Box, ph: int, pw: int) -> Bin:
            x1, y1, x2, y2 = (float(real(end) * real(self.spatial_scale)) for end in box)
            rows = _line((y1, y2), ph, bins[0], size[0], offset, real)
            columns = _line((x1, x2), pw, bins[1], size[1], offset, real)
            return crossed(_RULES, rows, columns, real)

        return definition

    def slopes(self, _: Pair) -> Slopes:
        """Return the derivatives of the weights of a sample."""
        real, (rows, columns) = as_real(self.coordinate_dtype), self.read_size

        def slopes_at(sample: Sample) -> tuple[list[Pixel], list[Pixel]]:
            return slopes(_cells(sample.y, rows, real), _cells(sample.x, columns, real))

        return slopes_at

    def motion(self, bins: Pair, _: Pair) -> Motion:
        """Return how samples move with the ends of their box."""
        scale, offset = self.spatial_scale, self.sample_offset

        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            y, x = ((p + offset) / count for p, count in zip((ph, pw), bins, strict=True))
            yield 0.0, scale * (1 - x)
            yield scale * (1 - y), 0.0
            yield 0.0, scale * x
            yield scale * y, 0.0

        return moves

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return crops."""
        return self.averages.forward(features, output_size)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose."""
        return self.averages.backward(grad_output, input_shape)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes x1, y1, x2, y2."""
        return self.averages.backward_boxes(grad_output, features, self.slopes, self.motion)


@dataclass(frozen=True)
class MultilevelGardenCrop(AveragesOfPyramid):
    """As ``compat.model_garden.multilevel_crop_and_resize``, slowly, for boxes with levels."""

    spatial_scales: Sequence[float]
    _: KW_ONLY
    sample_offset: float

    def on_map(self, level: int, boxes: Floats, first_map: Pair) -> GardenCrop:
        """Return the crops from one map."""
        return GardenCrop(
            boxes,
            self.spatial_scales[level],
            sample_offset=self.sample_offset,
            read_size=_read_of(first_map, level),
            coordinate_dtype=self.coordinate_dtype,
        )
