"""Layouts: which size of an array is which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

Layout: TypeAlias = Literal["NCHW", "NHWC"]
Shape4: TypeAlias = tuple[int, int, int, int]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

# Axes of the channels, rows and columns in a shape.
AXES: dict[str, tuple[int, int, int]] = {"NCHW": (1, 2, 3), "NHWC": (3, 1, 2)}


def height_width(shape: Sequence[int], layout: Layout) -> tuple[int, int]:
    """Return the two sizes along which maps, or grids of bins, extend."""
    return (shape[1], shape[2]) if layout == "NHWC" else (shape[2], shape[3])


def channels(shape: Sequence[int], layout: Layout) -> int:
    """Return the number of channels."""
    return shape[3] if layout == "NHWC" else shape[1]


def nhwc_view(array: Any) -> Any:
    """Return a view of an (N, C, H, W) array as (N, H, W, C)."""
    return array.transpose(0, 2, 3, 1)


def nchw_view(array: Any) -> Any:
    """Return a view of an (N, H, W, C) array as (N, C, H, W)."""
    return array.transpose(0, 3, 1, 2)


def cells(shape: Sequence[int], layout: Layout) -> int:
    """Return how many cells a map has."""
    height, width = height_width(shape, layout)
    return height * width
