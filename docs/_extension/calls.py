"""One call of every operation and of every system, from its row: `Compared.example`.

The site shows these texts, and draws and tabulates what they do.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool import compat
from roipool.systems import COMPARED

FloatArray = NDArray[np.float32]
Box = tuple[float, float, float, float]

CALLS = {name: one.example for name, one in COMPARED.items() if one.example}

# A turned box has no corners, and fractions are of the map less one cell: what the texts above
# call by these names.
BINS = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
ANGLE = np.float32(np.pi / 6)  # radians, counter-clockwise


def names(x: FloatArray, box: Box) -> dict[str, Any]:
    """Return what the texts call by name, of maps (1, C, H, W) and a box x1, y1, x2, y2."""
    height, width = x.shape[2:]
    x1, y1, x2, y2 = box
    down, across = height - 1, width - 1
    return {
        "x": x,
        "x_nhwc": np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
        "x_of_groups": x.repeat(4, axis=1),  # for 2 x 2 groups of bins
        "rois": np.array([[0, x1, y1, x2, y2]], np.float32),
        "xyxy": np.array([[x1, y1, x2, y2]], np.float32),
        "yxyx": np.array([[y1, x1, y2, x2]], np.float32),
        "fractions": np.array([[y1 / down, x1 / across, y2 / down, x2 / across]], np.float32),
        "offsets": np.array([[[[0, 1], [2, 0]], [[-1, 0], [0, 1]]]], np.float32),
        "rotated": np.array(
            [[0, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, ANGLE]], np.float32
        ),
        "rotated_degrees": np.array(
            [[0, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, np.rad2deg(ANGLE)]], np.float32
        ),
        "bins": BINS,
    }


def is_turned(name: str) -> bool:
    """Return whether a call's box is turned."""
    return re.search(r"\brotated(_degrees)?\b", CALLS[name]) is not None


def answer(name: str, x: FloatArray, box: Box) -> FloatArray:
    """Return the pooled values of one call, shape (C, 2, 2)."""
    modules = {module: getattr(compat, module) for module in compat.__all__}
    result = eval(CALLS[name], {"roipool": roipool, **modules}, names(x, box))
    pooled = (result[0] if isinstance(result, tuple) else result)[0]
    return pooled.transpose(2, 0, 1) if "x_nhwc" in CALLS[name] else pooled
