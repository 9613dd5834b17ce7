"""Layouts: which size of an array is which."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

Layout: TypeAlias = Literal["NCHW", "NHWC"]
Shape4: TypeAlias = tuple[int, int, int, int]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
VolumeLayout: TypeAlias = Literal["NCDHW", "NDHWC"]
Shape5: TypeAlias = tuple[int, int, int, int, int]
VOLUME_LAYOUTS: tuple[VolumeLayout, ...] = get_args(VolumeLayout)
# The layout of the maps that volumes are where the rows of their planes follow each other.
MAP_LAYOUTS: dict[VolumeLayout, Layout] = {"NCDHW": "NCHW", "NDHWC": "NHWC"}

# Axes of the channels, rows and columns in a shape.
AXES: dict[str, tuple[int, int, int]] = {"NCHW": (1, 2, 3), "NHWC": (3, 1, 2)}


def height_width(shape: Sequence[int], layout: Layout) -> tuple[int, int]:
    """Return the two sizes along which maps, or grids of bins, extend."""
    return (shape[1], shape[2]) if layout == "NHWC" else (shape[2], shape[3])


def channels(shape: Sequence[int], layout: Layout) -> int:
    """Return the number of channels."""
    return shape[3] if layout == "NHWC" else shape[1]


def _permuted(array: Any) -> Any:
    """Return the method that puts axes in an order: tensors' `transpose` exchanges two."""
    return array.permute if hasattr(array, "permute") else array.transpose


def nhwc_view(array: Any) -> Any:
    """Return a view of an (N, C, H, W) array as (N, H, W, C)."""
    return _permuted(array)(0, 2, 3, 1)


def nchw_view(array: Any) -> Any:
    """Return a view of an (N, H, W, C) array as (N, C, H, W)."""
    return _permuted(array)(0, 3, 1, 2)


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


# ---- Volumes, and what is pooled from them: maps whose rows are those of all planes


def volume_size(shape: Sequence[int], layout: VolumeLayout) -> tuple[int, int, int]:
    """Return the three sizes along which volumes, or grids of bins, extend."""
    if layout == "NDHWC":
        return shape[1], shape[2], shape[3]
    return shape[2], shape[3], shape[4]


def volume_channels(shape: Sequence[int], layout: VolumeLayout) -> int:
    """Return the number of channels."""
    return shape[4] if layout == "NDHWC" else shape[1]


def volume_of(first: int, count: int, size: Sequence[int], layout: VolumeLayout) -> Shape5:
    """Return the shape of volumes, or of values pooled from them, of these sizes."""
    depth, rows, columns = size
    if layout == "NDHWC":
        return first, depth, rows, columns, count
    return first, count, depth, rows, columns


def merged_shape(shape: Sequence[int], layout: VolumeLayout) -> Shape4:
    """Return the shape of volumes as maps."""
    depth, rows, columns = volume_size(shape, layout)
    if layout == "NDHWC":
        return shape[0], depth * rows, columns, shape[4]
    return shape[0], shape[1], depth * rows, columns


def merged(array: Any, layout: VolumeLayout) -> Any:
    """Return volumes as maps, without a copy where their memory allows it."""
    return array.reshape(merged_shape(array.shape, layout))


# ---- Position-sensitive operations: each channel of pooled values is pooled from as many channels
# of the features as bins have groups.


def groups_of_bins(given: Sequence[int], size: Sequence[int]) -> tuple[int, int]:
    """Return the groups of bins, down and across, where 0 stands for as many as bins."""
    return given[0] or size[0], given[1] or size[1]


def pooled_channels(name: str, count: int, group_size: Sequence[int]) -> int:
    """Return the channels of pooled values for those of the features, which are argument `name`."""
    down, across = group_size
    groups = max(1, down * across)  # 0 where there are no bins
    if count % groups:
        raise ValueError(
            f"{name} must have a multiple of {down} x {across} channels, one for each group of "
            f"bins, got {count}"
        )
    return count // groups
