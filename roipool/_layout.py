"""What the layout and the type of maps mean: which size is which, and what is computed in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

Layout: TypeAlias = Literal["NCHW", "NHWC"]
Shape4: TypeAlias = tuple[int, int, int, int]

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return ``dtype.name``, which NumPy makes anew, and slowly, each time."""
    return dtype.name


def real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of coordinates: float64 for float64 maps, else float32."""
    return _FLOAT64 if dtype_name(dtype) == "float64" else _FLOAT32


def height_width(shape: Sequence[int], layout: Layout) -> tuple[int, int]:
    """Return the two sizes along which maps, or grids of bins, extend."""
    return (shape[1], shape[2]) if layout == "NHWC" else (shape[2], shape[3])


def channels(shape: Sequence[int], layout: Layout) -> int:
    """Return the number of channels."""
    return shape[3] if layout == "NHWC" else shape[1]


def pooled_shape(boxes: int, channels: int, size: tuple[int, int], layout: Layout) -> Shape4:
    """Return the shape of pooled values."""
    return (boxes, *size, channels) if layout == "NHWC" else (boxes, channels, *size)
