"""ROI align of volumes: the average of trilinear samples."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool.reference._bins import Cells, Line, Place, line_of
from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import Array, Box, Boxes, Floats, Real, as_boxes, as_real
from roipool.reference._roi_align import share_of
from roipool.reference._rules import BORDERS, ROI_ALIGN, Rules, held, product
from roipool.reference._sides import side_of

Triple: TypeAlias = tuple[int, int, int]
Numbers: TypeAlias = float | Sequence[float]  # one for all axes, or (depth, vertical, horizontal)
Voxels: TypeAlias = list[tuple[int, int, int, float]]  # plane, row, column and weight of cells
AXES = range(3)


class _Sample(NamedTuple):
    """A sample of a bin: on each axis its number, its position, and the cells that it reads."""

    numbers: tuple[int, ...]
    positions: tuple[float, ...]
    cells: tuple[Cells, ...]

    def voxels(self, *slopes: tuple[int, Cells]) -> Voxels:
        """Return what it reads; `slopes` replace the weights along an axis by others.

        A weight of 0 is neither read nor given a gradient.
        """
        along = list(self.cells)
        for axis, cells in slopes:
            along[axis] = cells
        multiply = operator.mul if slopes else product
        corners = (
            (z, y, x, multiply(multiply(float(deep), float(down)), float(wide)))
            for (z, deep), (y, down), (x, wide) in itertools.product(*along)
        )
        return [corner for corner in corners if corner[3] != 0]


class _Bin(NamedTuple):
    """A bin: its image, where its values are among pooled ones, and its place on each axis."""

    image: int
    at: Any
    places: list[Place]
    lines: list[Line]

    @property
    def divisor(self) -> int:
        """How many samples it has; 1 if none, so that a sum can be divided."""
        return max(math.prod(line.grid for line in self.lines), 1)

    def samples(self) -> Iterator[_Sample]:
        """Yield the samples that are inside the volume on all axes."""
        for each in itertools.product(*(line.near for line in self.lines)):
            numbers, positions, cells = zip(*each, strict=True)
            if all(cells):
                yield _Sample(numbers, positions, cells)

    def voxels(self) -> Voxels:
        """Return the cells that its average reads, each with the exact sum of its weights."""
        weights: dict[tuple[int, int, int], list[float]] = {}
        for sample in self.samples():
            for z, y, x, weight in sample.voxels():
                weights.setdefault((z, y, x), []).append(weight)
        return [(*cell, math.fsum(each) / self.divisor) for cell, each in weights.items()]


def _read(volume: Floats, voxels: Voxels) -> Floats:
    """Per channel: weight times cell, added up."""
    total = np.zeros(len(volume))
    for z, y, x, weight in voxels:
        total += volume[:, z, y, x] * weight
    return total


@dataclass(frozen=True)
class _Volumes:
    """The loops over boxes, bins and samples."""

    rules: Rules  # rules for the sides of boxes
    boxes: Boxes  # the image of each, and x1, y1, x2, y2 with z1 and z2 behind x and y
    # Cells per voxel, and samples per bin, by axis.
    scales: tuple[float, ...]
    ratios: tuple[int, ...]
    real: Real  # type of coordinates

    def places(self, box: Box, number: Sequence[int], bins: Triple, size: Triple) -> list[Place]:
        """Return the place of a bin on each axis."""
        return [
            Place(
                *_ends(box, axis),
                number[axis],
                bins[axis],
                size[axis],
                self.real,
                self.real,
                self.scales[axis],
                self.ratios[axis],
            )
            for axis in AXES
        ]

    def every_bin(self, bins: Triple, size: Triple) -> Iterator[_Bin]:
        """Yield the bins of all boxes."""
        for k, (image, box) in enumerate(self.boxes):
            for number in np.ndindex(*bins):
                places = self.places(box, number, bins, size)
                lines = [line_of(self.rules, place) for place in places]
                yield _Bin(image, (k, slice(None), *number), places, lines)

    def forward(self, features: Floats, bins: Triple) -> Floats:
        """Average the samples of every bin; 0 without samples."""
        pooled = np.zeros((len(self.boxes), features.shape[1], *bins))
        for one in self.every_bin(bins, _size(features.shape)):
            pooled[one.at] = _read(features[one.image], one.voxels())
        return pooled

    def backward(self, grad_output: Floats, shape: Sequence[int]) -> Floats:
        """Add every sample's share of its bin's gradient to the cells that it reads."""
        grad, bins = np.zeros(shape), _size(grad_output.shape)
        for one in self.every_bin(bins, _size(shape)):
            for z, y, x, weight in one.voxels():
                grad[one.image, :, z, y, x] += weight * grad_output[one.at]
        return grad

    def backward_boxes(self, grad_output: Floats, features: Floats) -> Floats:
        """Return what every sample changes as the ends of its box move."""
        grad, bins = np.zeros((len(self.boxes), 6)), _size(grad_output.shape)
        for one in self.every_bin(bins, _size(features.shape)):
            share = grad_output[one.at] / one.divisor
            changes: list[list[float]] = [[] for _ in range(6)]
            moves = [
                {
                    number: (_slopes(place, position), self.motion(place, line.grid, number))
                    for number, position, _ in line.near
                }
                for place, line in zip(one.places, one.lines, strict=True)
            ]
            for sample, axis in itertools.product(one.samples(), AXES):
                slopes, (by_low, by_high) = moves[axis][sample.numbers[axis]]
                voxels = sample.voxels((axis, slopes))
                slope = float((share * _read(features[one.image], voxels)).sum()) if voxels else 0.0
                changes[2 - axis].append(slope * by_low)
                changes[5 - axis].append(slope * by_high)
            grad[one.at[0]] += [_total(each) for each in changes]
        return grad

    def motion(self, place: Place, grid: int, number: int) -> tuple[float, float]:
        """Return how a sample moves with both ends of its box's side."""
        side = side_of(self.rules, place.first, place.last, place.scale, self.real)
        low, high = share_of(number, grid, place.p, place.bins, side.is_held)
        scale = float(self.real(place.scale))
        return low * scale, high * scale


def _total(numbers: list[float]) -> float:
    """Return the sum, rounded once where all numbers are finite: a bin may have many samples."""
    return math.fsum(numbers) if np.isfinite(numbers).all() else float(np.sum(numbers))


def _ends(box: Box, axis: int) -> tuple[float, float]:
    """Return both ends of a box along depth, rows or columns: it has x, y, z of two corners."""
    return box[2 - axis], box[5 - axis]


def _size(shape: Sequence[int]) -> Triple:
    depth, rows, columns = shape[2:]
    return depth, rows, columns


def _slopes(place: Place, position: float) -> Cells:
    """Return the derivatives of a sample's weights by its position; none where it is held."""
    at = place.real(position)
    if at < 0 or BORDERS["hold"].excludes(at, place.size):
        return []
    low, high, *_ = held(at, place.size, place.real)
    return [(low, -1.0), (high, 1.0)] if low < high else []


def _triple(value: Numbers) -> Sequence[float]:
    return (value,) * 3 if isinstance(value, (int, float, np.number)) else value


def _to_ncdhw(array: Array, layout: str) -> Floats:
    values = np.asarray(array).astype(np.float64)
    return np.moveaxis(values, -1, 1) if layout == "NDHWC" else values


def _from_ncdhw(array: Floats, layout: str) -> Floats:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NDHWC" else array


@dataclass(frozen=True)
class RoiAlign3d(BoxPooling):
    """As :func:`roipool.roi_align_3d`, slowly: every sample by itself."""

    spatial_scale: Numbers = 1.0
    sampling_ratio: Numbers = 0
    _: KW_ONLY
    aligned: bool = True
    layout: str = "NCDHW"

    def volumes(self, images: int) -> _Volumes:
        """Return the loops over the boxes of some images."""
        scales = tuple(float(each) for each in _triple(self.spatial_scale))
        ratios = tuple(int(each) for each in _triple(self.sampling_ratio))
        boxes = as_boxes(self.rois, self.batch_indices, images, 6)
        real = as_real(self.coordinate_dtype)
        return _Volumes(ROI_ALIGN.of_boxes(self.aligned), boxes, scales, ratios, real)

    def forward(self, features: Array, output_size: int | Sequence[int]) -> Floats:
        """Return averages."""
        maps = _to_ncdhw(features, self.layout)
        depth, rows, columns = (int(each) for each in _triple(output_size))
        pooled = self.volumes(len(maps)).forward(maps, (depth, rows, columns))
        return _from_ncdhw(pooled, self.layout)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of volumes: the transpose, sample by sample."""
        images, *sizes = (int(size) for size in input_shape)
        is_last = self.layout == "NDHWC"
        shape = (images, sizes[-1], *sizes[:-1]) if is_last else (images, *sizes)
        upstream = _to_ncdhw(grad_output, self.layout)
        return _from_ncdhw(self.volumes(images).backward(upstream, shape), self.layout)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes: a slope for every sample."""
        maps, upstream = (_to_ncdhw(one, self.layout) for one in (features, grad_output))
        return self.volumes(len(maps)).backward_boxes(upstream, maps)
