# Written by scripts/stubs.py: what roipool.dask has, for type checkers.
from collections.abc import Sequence
from typing import Any, Literal, overload

from dask.array import Array
from numpy.typing import ArrayLike, DTypeLike, NDArray

from roipool._layout import Layout, VolumeLayout
from roipool._types import AngleUnit, Border, Method, Mode
from roipool.dask._calls import chunk_order as chunk_order

@overload
def roi_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[False] = False,
    dtype: DTypeLike | None = None,
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
@overload
def roi_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[True],
    dtype: DTypeLike | None = None,
    out: None = None,
    keep_order: bool = True,
) -> tuple[Array, Array]: ...
def roi_average_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
@overload
def roi_align(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[False] = False,
    dtype: DTypeLike | None = None,
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
@overload
def roi_align(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[True],
    dtype: DTypeLike | None = None,
    out: None = None,
    keep_order: bool = True,
) -> tuple[Array, Array]: ...
def ps_roi_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def ps_roi_align(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def precise_roi_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def roi_align_rotated(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def deform_roi_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    offsets: NDArray[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: NDArray[Any] | None = None,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def deformable_ps_roi_pool(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    offsets: NDArray[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    samples: int | Sequence[int] = 4,
    *,
    group_size: int | Sequence[int] = 0,
    gamma: float = 0.1,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def crop_and_resize(
    features: Array,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    crop_size: int | Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    border: Border = "constant",
    extrapolation_value: float = 0.0,
    layout: Layout = "NCHW",
    dtype: DTypeLike | None = None,
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def multilevel_roi_align(
    features: Sequence[Array],
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: ArrayLike | None = None,
    aligned: bool = True,
    batch_indices: ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
def roi_align_3d(
    features: Array,
    rois: ArrayLike | Sequence[NDArray[Any]],
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: ArrayLike | None = None,
    layout: VolumeLayout = "NCDHW",
    out: None = None,
    keep_order: bool = True,
) -> Array: ...
