"""The volume and the boxes that are compared if the user gives none: balls in a dim volume."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["boxes_in_cells", "values"]

_SHAPE = (20, 48, 48)  # planes, rows, columns
# The middle x, y, z and the radius of each ball, in cells.
_BALLS = np.array(
    [
        [13.3, 14.6, 6.8, 6.0],
        [34.2, 12.1, 14.4, 4.5],
        [19.7, 35.3, 11.9, 5.0],
        [38.4, 36.8, 5.6, 3.0],
    ]
)
# x1, y1, z1, x2, y2, z2 in cells: on the edge, smaller than a cell, and reversed.
_SPECIAL_BOXES = [
    [-4, 30, 14, 9, 43, 23],
    [38.2, 36.5, 5.3, 38.8, 37.1, 5.9],
    [26, 22, 12, 16, 12, 4],
]


def values() -> NDArray[np.float32]:
    """Return the volume, shape (1, 1, D, H, W): about 1 in the balls, and 0 to 0.2 elsewhere."""
    depth, rows, columns = _SHAPE
    z, y, x = np.ogrid[:depth, :rows, :columns]
    volume = 0.2 * (x / columns) * np.ones(_SHAPE)
    for *middle, radius in _BALLS:
        distances = [(at - centre) ** 2 for at, centre in zip((x, y, z), middle, strict=True)]
        volume += 1 / (1 + np.exp(2 * (np.sqrt(sum(distances)) - radius)))
    return volume[np.newaxis, np.newaxis].astype(np.float32)


def boxes_in_cells() -> NDArray[np.float64]:
    """Return boxes x1, y1, z1, x2, y2, z2: the whole volume, around the balls, and special ones."""
    depth, rows, columns = _SHAPE
    middles, reach = _BALLS[:, :3], 1.3 * _BALLS[:, 3:]
    around = np.concatenate([middles - reach, middles + reach], axis=1)
    return np.array([*around, *_SPECIAL_BOXES, [0, 0, 0, columns, rows, depth]])
