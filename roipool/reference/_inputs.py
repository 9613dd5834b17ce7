"""What the arguments of every oracle become: float64 maps (N, C, H, W), boxes with their images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Answer: TypeAlias = Floats | tuple[npt.NDArray[Any], ...]  # pooled values; of some with argmax
Array: TypeAlias = npt.ArrayLike
DType: TypeAlias = npt.DTypeLike
Rois: TypeAlias = Array | Sequence[Array]
Size: TypeAlias = int | Sequence[int]  # one number for all axes, or (vertical, horizontal)
Scale: TypeAlias = float | tuple[float, float]  # one number for both axes, or (rows, columns)
Pair: TypeAlias = tuple[int, int]
Box: TypeAlias = tuple[float, ...]
Boxes: TypeAlias = list[tuple[int, Box]]  # (image, box) of every region
Scalar: TypeAlias = "np.floating[Any]"  # a number in the coordinate type
Real: TypeAlias = Callable[[float], Scalar]  # makes one


def by_axis(value: Size, axes: int) -> tuple[int, ...]:
    if isinstance(value, (int, np.integer)):
        return (int(value),) * axes
    return tuple(int(each) for each in value)


def as_pair(value: Size) -> Pair:
    vertical, horizontal = by_axis(value, 2)
    return vertical, horizontal


def as_scales(value: Scale) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def as_real(coordinate_dtype: DType) -> Real:
    return cast(Real, np.dtype(coordinate_dtype).type)


def to_nchw(array: Array, layout: str) -> Floats:
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be 'NCHW' or 'NHWC', got {layout!r}")
    values = np.asarray(array).astype(np.float64)
    return np.moveaxis(values, -1, 1) if layout == "NHWC" else values


def from_nchw(array: npt.NDArray[Any], layout: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NHWC" else array


def shape_nchw(shape: Sequence[int], layout: str) -> tuple[int, int, int, int]:
    n, second, third, fourth = (int(extent) for extent in shape)
    return (n, fourth, second, third) if layout == "NHWC" else (n, second, third, fourth)


def as_boxes(rois: Rois, batch_indices: Array | None, images: int, numbers: int = 4) -> Boxes:
    """The boxes of `rois`, in any of its three forms, with their images.

    A box has so many `numbers`. An image that does not exist is an error.
    """
    if (
        batch_indices is None
        and isinstance(rois, (list, tuple))
        and all(np.ndim(part) == 2 for part in rois)
    ):
        if len(rois) != images:
            raise ValueError(
                "rois: a sequence must have one array per image, "
                f"got {len(rois)} for {images} images"
            )
        parts = [np.asarray(part).astype(np.float64) for part in rois]
        return [(n, tuple(row.tolist())) for n, part in enumerate(parts) for row in part]
    table = np.asarray(rois).astype(np.float64)
    if table.ndim != 2 or table.shape[1] != numbers + (batch_indices is None):
        raise ValueError(
            f"rois must be (K, {numbers + 1}), or (K, {numbers}) with batch_indices, "
            f"got shape {table.shape}"
        )
    batch = table[:, 0] if batch_indices is None else np.asarray(batch_indices).astype(np.float64)
    for row, n in enumerate(batch.tolist()):
        if not (0 <= n < images and n == int(n)):
            raise ValueError(
                f"batch index of row {row} must be an integer in [0, {images}), got {n}"
            )
    return [(int(n), tuple(row[-numbers:].tolist())) for n, row in zip(batch, table, strict=True)]
