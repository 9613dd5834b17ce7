"""Computes the value of a bin under any combination of rules.

An engine implements all rules of a system at once. Here the oracle (`roipool.reference`) computes
the samples of a bin under any `Rules`, and reads them from the map. Positions are float32, as in
the systems; tests compare the values with the engines and with the oracle's own loops.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool import reference
from roipool.reference import BoxOnMap, Rules
from roipool.tools.compare.problem import Options

__all__ = [
    "NotExplainedError",
    "Place",
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


class Place(NamedTuple):
    """A bin of a box on one channel of a map.

    Attributes
    ----------
    image : (H, W) float32 ndarray
        The map of one channel.
    box : (4,) or (5,) float32 ndarray
        x1, y1, x2, y2 in pixels; or centre x, centre y, width, height, angle.
    bin : (int, int)
        Row and column of the bin.
    options : Options
        Scale, number of bins, and sampling ratio.
    """

    image: FloatArray
    box: FloatArray
    bin: tuple[int, int]
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


def pooled_value(rules: Rules, place: Place) -> float:
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
        turned_bin = reference.bin_of(rules, place.on_map, place.bin)
        return reference.value_of(rules, turned_bin, place.image)
    if np.isfinite(box_in_cells(rules, place)).all():  # otherwise every sample is outside
        count = max(sample_counts(rules, place))
        if count > _MAX_COUNT:
            raise NotExplainedError(f"{count:,} samples of a bin along one axis")
    return _upright_value(rules, place)


def _upright_value(rules: Rules, place: Place) -> float:
    """Read the grid of samples of an upright bin, as a product of matrices."""
    lines = reference.lines_of(rules, place.on_map, place.bin)
    if not all(line.grid for line in lines):
        return rules.empty
    down, along = ([cells for _, _, cells in line.near] for line in lines)
    inside = [sum(map(bool, samples)) for samples in (down, along)]
    if not all(inside):
        return rules.empty if rules.reduce == "max" and rules.divisor == "samples inside" else 0.0
    with np.errstate(all="ignore"):
        if rules.reduce == "mean":
            values = _sample_values(place.image, down, along, reads_all=False)
            counts = math.prod(line.grid for line in lines), math.prod(inside)
            return float(values.sum() / reference.DIVISORS[rules.divisor](*counts))
        if rules.reduce == "max of corners":
            down, along = ([[pair] for cells in each for pair in cells] for each in (down, along))
        values = _sample_values(place.image, down, along, reads_all=True)
    # Samples outside have the value 0, if they take part.
    are_outside = inside != [line.grid for line in lines] and rules.divisor != "samples inside"
    if not rules.empty and not are_outside and np.isnan(values).all():
        raise NotExplainedError("bins of which every sample is NaN")
    start = max(rules.empty or -math.inf, 0.0 if are_outside else -math.inf)
    return float(np.fmax.reduce(values, axis=None, initial=start))


def box_in_cells(rules: Rules, place: Place) -> list[float]:
    """Return x1, y1, x2, y2 in map cells under the rules; for a rotated box, before rotation."""
    return reference.box_in_cells(rules, place.on_map)


def sample_counts(rules: Rules, place: Place) -> list[int]:
    """Return the number of rows and columns of samples in the bin."""
    return reference.counts_of(rules, place.on_map, place.bin)


def _sample_values(
    image: FloatArray, down: Cells, along: Cells, reads_all: bool
) -> NDArray[np.float64]:
    """Return the value of each sample.

    Samples of a maximum `reads_all` their cells; in a mean, a NaN of weight 0 has no effect.
    """
    (ys, y_weights, y_read), (xs, x_weights, x_read) = _matrix(down), _matrix(along)
    window = image[np.ix_(ys, xs)].astype(np.float64)
    finite = np.isfinite(window)
    values: NDArray[np.float64] = y_weights @ np.where(finite, window, 0.0) @ x_weights.T
    for row, column in np.argwhere(~finite):
        weights = np.outer(y_weights[:, row], x_weights[:, column])
        read = np.outer(y_read[:, row], x_read[:, column]) if reads_all else weights != 0
        values += np.where(read, weights * window[row, column], 0.0)
    return values


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
