"""The geometry that several operations share: rounding, pixels of a bin, bilinear weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from roipool.reference._inputs import Real, Scalar
from roipool.reference._loops import Bin, Pixel, Sample

# Pixel before a position, pixel after it, their weights:
Neighbours: TypeAlias = tuple[int, int, float, float]


def _round_half_away(value: Scalar) -> int:
    """Nearest integer, halves away from zero: exact, and an integer of any size."""
    magnitude = abs(float(value))
    whole = int(magnitude)
    whole += magnitude - whole >= 0.5
    return -whole if value < 0 else whole


def _whole_pixels(rows: range, columns: range, width: int) -> Bin:
    """A bin whose samples are pixels, numbered by their index in the map."""
    samples = [Sample(y * width + x, y, x, [(y, x, 1.0)]) for y in rows for x in columns]
    return Bin(samples, (len(rows), len(columns)))


def _cut_bin(
    start: Scalar, length: Scalar, p: int, bins: int, size: int, real: Real
) -> tuple[Scalar, Scalar]:
    """Start and end of bin `p` of a side, not rounded, cut at the map.

    Of a side that is not finite there is nothing.
    """
    bin_size = length / real(bins)
    if not (np.isfinite(start) and np.isfinite(bin_size)):
        return real(0), real(0)
    low, high = (
        min(max(real(edge) * bin_size + start, real(0)), real(size)) for edge in (p, p + 1)
    )
    return low, high


def _corners(
    rows: Neighbours,
    columns: Neighbours,
    product: Callable[[float, float], float] | None = None,
) -> list[Pixel]:
    """The four pixels around a point with their bilinear weights.

    The `product` of two weights is that of an average, unless another is given.
    """
    (y0, y1, above, below), (x0, x1, left, right) = rows, columns
    weight = product or _product
    return [
        (y0, x0, weight(above, left)),
        (y0, x1, weight(above, right)),
        (y1, x0, weight(below, left)),
        (y1, x1, weight(below, right)),
    ]


def _product(down: float, across: float) -> float:
    """The product of two weights where rows and columns are weighted one after the other.

    It is 0 only if one of them is, or else a NaN would not be read.
    """
    return down * across or (min(down, across) if down and across else 0.0)


def _corner_slopes(rows: Neighbours, columns: Neighbours) -> tuple[list[Pixel], list[Pixel]]:
    """The derivatives of those weights for y and for x.

    There are none on an axis where both pixels are one.
    """
    (y0, y1, above, below), (x0, x1, left, right) = rows, columns
    for_y = [(y0, x0, -left), (y0, x1, -right), (y1, x0, left), (y1, x1, right)]
    for_x = [(y0, x0, -above), (y0, x1, above), (y1, x0, -below), (y1, x1, below)]
    return for_y if y0 < y1 else [], for_x if x0 < x1 else []
