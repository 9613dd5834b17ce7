"""Layouts: which size of an array is which."""

from __future__ import annotations

import operator
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


is_in_c_order = operator.attrgetter("flags.c_contiguous")


def are_channels_last(maps: Sequence[Any]) -> bool:
    """Return whether (N, C, H, W) arrays lie in memory as (N, H, W, C), rather than in C order."""
    if all(map(is_in_c_order, maps)):  # the usual maps
        return False
    return all(is_in_c_order(nhwc_view(each)) for each in maps)


def cells(shape: Sequence[int], layout: Layout) -> int:
    """Return the number of cells of a map."""
    height, width = height_width(shape, layout)
    return height * width


# ---- Position-sensitive operations: each channel of pooled values is pooled from as many channels
# of the features as bins have groups.


def groups_of_bins(given: Sequence[int], size: Sequence[int]) -> tuple[int, int]:
    """Return the groups of bins, down and across, where 0 stands for as many as bins."""
    return given[0] or size[0], given[1] or size[1]


def pooled_channels(name: str, count: int, group_size: Sequence[int]) -> int:
    """Return the channels of pooled values for those of the features, which are argument `name`."""
    down, across = group_size
    pooled, rest = divmod(count, max(1, down * across))  # 0 where there are no bins
    if rest:
        raise ValueError(
            f"{name} must have a multiple of {down} x {across} channels, one for each group of "
            f"bins, got {count}"
        )
    return pooled
