"""Computes the value of a bin under any combination of rules.

An engine implements all rules of a system at once. Here the oracle (`roipool.reference`) computes
the samples of a bin under any `Rules`, and reads them from the map. Positions are float32, as in
the systems; tests compare the values with the engines and with the oracle's own loops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool import reference
from roipool.reference import BoxOnMap, Rules
from roipool.tools.compare.problem import Options

__all__ = [
    "BinOnMap",
    "NotExplainedError",
    "box_in_cells",
    "pooled_value",
    "sample_counts",
]

FloatArray = NDArray[np.float32]
Cells = list[list[tuple[int, Any]]]  # for each sample: cells and weights
_MAX_COUNT = 4000  # most samples of a bin along one axis
_MAX_TURNED = 40_000  # most samples of a rotated box's bin


class NotExplainedError(Exception):
    """Raised if the value of a bin is not computed; the message says why."""


class BinOnMap(NamedTuple):
    """A bin of a box on one channel of a map."""

    image: FloatArray  # the map, or the volume, of one channel
    # x1, y1, x2, y2 in pixels; or centre x, centre y, width, height, angle; or, of a volume, x1,
    # y1, z1, x2, y2, z2.
    box: FloatArray
    bin: tuple[int, ...]  # row and column of the bin, and before them its plane in a volume
    options: Options  # scale, number of bins, and sampling ratio

    @property
    def rotated(self) -> bool:
        """Whether the box has an angle."""
        return len(self.box) == 5

    @property
    def on_map(self) -> BoxOnMap:
        """The box and its map, for the oracle."""
        return BoxOnMap(
            tuple(self.box.tolist()),
            self.options.output_size,
            self.image.shape,
            self.options.spatial_scale,
            self.options.sampling_ratio,
            np.float32,
        )


def pooled_value(rules: Rules, place: BinOnMap) -> float:
    """Return the value of one bin of one channel under any combination of rules.

    Raises
    ------
    NotExplainedError
        If the bin has thousands of samples, or if every sample of a maximum is NaN.
    """
    if place.rotated:
        count = math.prod(sample_counts(rules, place))
        if count > _MAX_TURNED:
            raise NotExplainedError(f"{count:,} samples of a bin")
        row, column = place.bin
        turned_bin = reference.bin_of(rules, place.on_map, (row, column))
        return reference.value_of(rules, turned_bin, place.image)
    if np.isfinite(box_in_cells(rules, place)).all():  # otherwise every sample is outside
        counts = sample_counts(rules, place)
        if max(counts) > _MAX_COUNT:
            raise NotExplainedError(f"{max(counts):,} samples of a bin along one axis")
        if math.prod(counts) > _MAX_COUNT**2:  # of a volume
            raise NotExplainedError(f"{math.prod(counts):,} samples of a bin")
    return _upright_value(rules, place)


def _upright_value(rules: Rules, place: BinOnMap) -> float:
    """Read the grid of samples of an upright bin, as a product of a matrix for each axis."""
    lines = reference.lines_of(rules, place.on_map, place.bin)
    if not all(line.grid for line in lines):
        return rules.empty
    samples = [[cells for _, _, cells in line.near] for line in lines]
    inside = [sum(map(bool, each)) for each in samples]
    if not all(inside):
        return rules.empty if rules.reduce == "max" and rules.divisor == "samples inside" else 0.0
    with np.errstate(all="ignore"):
        if rules.reduce == "mean":
            total = _sum_of_samples(place.image, samples)
            counts = math.prod(line.grid for line in lines), math.prod(inside)
            return float(total / reference.DIVISORS[rules.divisor](*counts))
        if rules.reduce == "max of corners":
            samples = [[[pair] for cells in each for pair in cells] for each in samples]
        values = _sample_values(place.image, samples, reads_all=True)
    # Samples outside have the value 0, if they take part.
    are_outside = inside != [line.grid for line in lines] and rules.divisor != "samples inside"
    if not rules.empty and not are_outside and np.isnan(values).all():
        raise NotExplainedError("bins of which every sample is NaN")
    start = max(rules.empty or -math.inf, 0.0 if are_outside else -math.inf)
    return float(np.fmax.reduce(values, axis=None, initial=start))


def box_in_cells(rules: Rules, place: BinOnMap) -> list[float]:
    """Return the box in map cells under the rules: x1, y1, x2, y2, or x1, y1, z1, x2, y2, z2.

    A rotated box is not yet rotated.
    """
    return reference.box_in_cells(rules, place.on_map)


def sample_counts(rules: Rules, place: BinOnMap) -> list[int]:
    """Return the number of samples in the bin along each axis of the map."""
    return reference.counts_of(rules, place.on_map, place.bin)


class _Axis(NamedTuple):
    """The samples along one axis."""

    # The cells that any of them read; one that is both neighbours of a sample is there twice.
    cells: NDArray[np.intp]
    # For each sample the places of its cells in `cells`; with fewer cells than others, any.
    columns: NDArray[np.intp]
    weights: NDArray[np.float64]  # the weights of these
    read: NDArray[np.bool_]  # whether the sample reads them

    @property
    def of_cells(self) -> NDArray[np.float64]:
        """The sum of all samples' weights for each cell."""
        sums = np.zeros(len(self.cells))
        np.add.at(sums, self.columns.ravel(), self.weights.ravel())
        return sums

    def times(self, values: NDArray[Any], axis: int) -> NDArray[np.float64]:
        """Return the samples' sums of values along an axis."""
        moved = np.moveaxis(values, axis, 0)
        count, most = self.columns.shape
        if 4 * most >= len(self.cells):
            matrix = np.zeros((count, len(self.cells)))
            np.add.at(matrix, (np.arange(count)[:, np.newaxis], self.columns), self.weights)
            return np.moveaxis(np.tensordot(matrix, moved, axes=1), 0, axis)
        total = np.zeros((count, *moved.shape[1:]))  # most samples read few of many cells
        for columns, weights in zip(self.columns.T, self.weights.T, strict=True):
            total += weights.reshape(-1, *[1] * (moved.ndim - 1)) * moved[columns]
        return np.moveaxis(total, 0, axis)

    def at(self, place: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return each sample's weight for one of the cells, and whether it reads that."""
        is_here = (self.columns == place) & self.read
        return np.where(is_here, self.weights, 0.0).sum(axis=1), is_here.any(axis=1)


def _axis(samples: Cells) -> _Axis:
    """Return the samples along one axis from the cells and weights of each."""
    most = max(map(len, samples))
    read = np.arange(most) < np.array([len(cells) for cells in samples])[:, np.newaxis]
    known = np.array([pair for cells in samples for pair in cells], np.float64).reshape(-1, 2)
    keys, weights = np.zeros(read.shape, np.intp), np.zeros(read.shape)
    # Two neighbours that are the same cell are read separately.
    keys[read], weights[read] = known[:, 0].astype(np.intp) * most, known[:, 1]
    keys += np.where(read, np.arange(most), keys[:, :1])
    places, columns = np.unique(keys, return_inverse=True)
    return _Axis(places // most, columns.reshape(keys.shape), weights, read)


def _sum_of_samples(image: FloatArray, samples: Sequence[Cells]) -> Any:
    """Return the sum of all samples, without the value of each: there may be many thousands."""
    axes = list(map(_axis, samples))
    total = image[np.ix_(*(axis.cells for axis in axes))].astype(np.float64)
    if not np.isfinite(total).all():
        return _sample_values(image, samples, reads_all=False).sum()
    for axis in axes:
        total = np.tensordot(axis.of_cells, total, axes=1)
    return total


def _sample_values(
    image: FloatArray, samples: Sequence[Cells], reads_all: bool
) -> NDArray[np.float64]:
    """Return the value of each sample, from the samples along each axis.

    Samples of a maximum `reads_all` their cells; in a mean, a NaN of weight 0 has no effect.
    """
    axes = list(map(_axis, samples))
    window = image[np.ix_(*(axis.cells for axis in axes))]
    finite = np.isfinite(window)
    values: NDArray[np.float64] = np.where(finite, window, 0.0)
    for number, axis in enumerate(axes):
        values = axis.times(values, number)
    for place in np.argwhere(~finite):
        weights, read = zip(
            *(axis.at(column) for axis, column in zip(axes, place, strict=True)), strict=True
        )
        weight = functools.reduce(np.multiply.outer, weights)
        is_read = functools.reduce(np.multiply.outer, read) if reads_all else weight != 0
        values += np.where(is_read, weight * np.float64(window[tuple(place)]), 0.0)
    return values
