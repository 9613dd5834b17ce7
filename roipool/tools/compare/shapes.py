"""Boxes as shapes in the picture."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["corners_of"]

FloatArray = NDArray[np.float32]


def corners_of(box: FloatArray) -> FloatArray:
    """Return the four corners of a box in order.

    Parameters
    ----------
    box : (4,) or (5,) float32 ndarray
        x1, y1, x2, y2 in pixels; or centre, sides and angle in radians, counter-clockwise as seen
        in the picture.

    Returns
    -------
    (4, 2) float32 ndarray
        x and y of each corner.
    """
    if len(box) == 4:
        x1, y1, x2, y2 = box
        return np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]], np.float32)
    cx, cy, width, height, angle = (float(value) for value in box)
    cosine, sine = math.cos(angle), math.sin(angle)
    # y points down in a picture.
    along = np.array([cosine, -sine]) * width / 2
    down = np.array([sine, cosine]) * height / 2
    centre = np.array([cx, cy])
    ends = [-along - down, along - down, along + down, -along + down]
    return np.array([centre + end for end in ends], np.float32)
