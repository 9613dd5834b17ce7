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
    """A bin of a box on one channel of a map.

    Attributes
    ----------
    image : (H, W) or (D, H, W) float32 ndarray
        The map, or the volume, of one channel.
    box : (4,), (5,) or (6,) float32 ndarray
        x1, y1, x2, y2 in pixels; or centre x, centre y, width, height, angle; or, of a volume,
        x1, y1, z1, x2, y2, z2.
    bin : tuple of int
        Row and column of the bin, and before them its plane in a volume.
    options : Options
        Scale, number of bins, and sampling ratio.
    """

    image: FloatArray
    box: FloatArray
    bin: tuple[int, ...]
    options: Options

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


def _sum_of_samples(image: FloatArray, samples: Sequence[Cells]) -> Any:
    """Return the sum of all samples, without the value of each: there may be many thousands."""
    cells, weights, _ = zip(*map(_matrix, samples), strict=True)
    total = image[np.ix_(*cells)].astype(np.float64)
    if not np.isfinite(total).all():
        return _sample_values(image, samples, reads_all=False).sum()
    for matrix in weights:
        total = np.tensordot(matrix.sum(axis=0), total, axes=1)
    return total


def _sample_values(
    image: FloatArray, samples: Sequence[Cells], reads_all: bool
) -> NDArray[np.float64]:
    """Return the value of each sample, from the samples along each axis.

    Samples of a maximum `reads_all` their cells; in a mean, a NaN of weight 0 has no effect.
    """
    cells, weights, read = zip(*map(_matrix, samples), strict=True)
    window = image[np.ix_(*cells)].astype(np.float64)
    finite = np.isfinite(window)
    *depth, down, along = weights
    values: NDArray[np.float64] = down @ np.where(finite, window, 0.0) @ along.T
    for deep in depth:
        values = np.tensordot(deep, values, axes=1)
    for place in np.argwhere(~finite):
        weight = _outer(weights, place)
        is_read = _outer(read, place) if reads_all else weight != 0
        values += np.where(is_read, weight * window[tuple(place)], 0.0)
    return values


def _outer(matrices: Sequence[NDArray[Any]], place: NDArray[np.intp]) -> NDArray[Any]:
    """Return the products, over all samples, of one column of each axis's matrix."""
    columns = (matrix[:, column] for matrix, column in zip(matrices, place, strict=True))
    product: NDArray[Any] = functools.reduce(np.multiply.outer, columns)
    return product


def _matrix(samples: Cells) -> tuple[list[int], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the cells, and for each sample their weights and whether it reads them."""
    # Two neighbours that are the same cell are read separately.
    places = sorted({(cell, i) for cells in samples for i, (cell, _) in enumerate(cells)})
    column = {place: number for number, place in enumerate(places)}
    weights = np.zeros((len(samples), len(places)))
    read = np.zeros(weights.shape, bool)
    for row, cells in enumerate(samples):
        for i, (cell, weight) in enumerate(cells):
            weights[row, column[cell, i]] = weight
            read[row, column[cell, i]] = True
    return [cell for cell, _ in places], weights, read
