"""The loops of the ROIAlign layer's backward for Caffe, part of ``compat.caffe``.

For each cell of a plane, they visit a range of bins of each box around the cell, and add the
gradient of those whose argmax is the cell. The range includes its end, which may be the number of
bins: a bin that the plane does not have. Its place in memory is that of another bin: one to the
right of a row is the first of the next row, and one below the last row belongs to the next channel
or box.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array, Library
from roipool._boxes import Regions
from roipool.compat import _conventions as conventions

FLOAT64 = np.dtype(np.float64)


def visits(
    library: Library, gradient: Array, cells: Array, regions: Regions, scale: float, width: int
) -> tuple[Array, Array]:
    """Return the gradient and the cell of the bin of each visit, as (K, C, rows + 1, columns + 1).

    Parameters
    ----------
    library : Library
        The library of the arrays.
    gradient, cells : ndarray
        The gradient of each bin, and its argmax in a map of `width` columns; -1 for none.
    regions : Regions
        The boxes.
    scale : float
        Map cells per image pixel.
    width : int
        Columns of the map.

    Returns
    -------
    gradient, cells : ndarray
        The cell is -1 where the loops of no cell come to the bin, and beyond the last bin of all.
    """
    xp, (rows, columns) = library.xp(), gradient.shape[2:]
    read, at = _as_read(xp, gradient), _as_read(xp, cells + 1) - 1  # beyond the last bin: 0 and -1
    y, real = at // width, conventions.scalar_of(regions.boxes)
    down, across = xp.arange(rows + 1).reshape(-1, 1), xp.arange(columns + 1)
    with np.errstate(all="ignore"):  # boxes may be infinite or NaN, which no cell is in
        x1, y1, x2, y2 = (
            (regions.boxes[:, place] * real(scale)).reshape(-1, 1, 1, 1) for place in range(4)
        )
        found = _is_visited(xp, y, y1, y2, down, rows)
        found = found & _is_visited(xp, at - y * width, x1, x2, across, columns)
    return read, xp.where(found & (at >= 0), at, np.int64(-1))


def _as_read(xp: Any, bins: Array) -> Array:
    """Return numbers of bins with one row and column more, as they follow in memory; then zeros."""
    boxes, channels, rows, columns = bins.shape
    beyond = xp.zeros((2, columns), bins.dtype)
    memory = xp.concatenate([bins.reshape(boxes * channels * rows, columns), beyond], axis=0)
    wider = xp.concatenate([memory[:-1], memory[1:, :1]], axis=1)
    own = wider[:-1].reshape(boxes, channels, rows, columns + 1)
    below = wider[rows::rows].reshape(boxes, channels, 1, columns + 1)
    return xp.concatenate([own, below], axis=2)


def _is_visited(xp: Any, cell: Array, low: Array, high: Array, visited: Array, bins: int) -> Array:
    """Return whether the loop of a cell, along one axis, comes to a bin."""
    dtype = check.dtype_of(low)
    start, end = (check.cast(each, FLOAT64) for each in (xp.floor(low), -xp.floor(-high)))
    length = check.cast(end - start + 1.0, dtype) / dtype.type(bins)
    first = xp.floor(check.cast(cell - start, dtype) / length)
    last = -xp.floor(-check.cast(cell - start + 1.0, dtype) / length)
    is_in_range = (xp.clip(first, 0, bins) <= visited) & (visited <= xp.clip(last, 0, bins))
    return is_in_range & (cell >= start) & (cell <= end)
