# Written by scripts/stubs.py: what roipool.jax has, for type checkers.
from collections.abc import Sequence
from typing import Any, Literal, overload

from jax import Array
from numpy.typing import ArrayLike, NDArray

from roipool._layout import Layout, VolumeLayout
from roipool._types import AngleUnit, Method, Mode
from roipool.jax._transport import transport as transport

def assign_levels(
    rois: Array | NDArray[Any],
    min_level: int,
    max_level: int,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
) -> Array: ...
@overload
def roi_pool(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[False] = False,
    out: None = None,
) -> Array: ...
@overload
def roi_pool(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[True],
    out: None = None,
) -> tuple[Array, Array]: ...
def roi_pool_backward(
    grad_output: Array | NDArray[Any],
    argmax: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def roi_average_pool(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def roi_average_pool_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
@overload
def roi_align(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[False] = False,
    out: None = None,
) -> Array: ...
@overload
def roi_align(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[True],
    out: None = None,
) -> tuple[Array, Array]: ...
def roi_align_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    argmax: Array | NDArray[Any] | None = None,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def roi_align_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def ps_roi_pool(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def ps_roi_pool_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def ps_roi_align(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def ps_roi_align_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def ps_roi_align_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def precise_roi_pool(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def precise_roi_pool_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def precise_roi_pool_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def roi_align_rotated(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def roi_align_rotated_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def roi_align_rotated_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def deform_roi_pool(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    offsets: Array | NDArray[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Array | NDArray[Any] | None = None,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def deform_roi_pool_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    offsets: Array | NDArray[Any],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Array | NDArray[Any] | None = None,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def deform_roi_pool_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    offsets: Array | NDArray[Any],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Array | NDArray[Any] | None = None,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def deform_roi_pool_backward_offsets(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    offsets: Array | NDArray[Any],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Array | NDArray[Any] | None = None,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def deform_roi_pool_backward_mask(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    offsets: Array | NDArray[Any],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def crop_and_resize(
    features: Array | NDArray[Any],
    boxes: Array | ArrayLike,
    box_indices: Array | ArrayLike,
    crop_size: int | Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    extrapolation_value: float = 0.0,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def crop_and_resize_backward(
    grad_output: Array | NDArray[Any],
    boxes: Array | ArrayLike,
    box_indices: Array | ArrayLike,
    input_shape: Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def crop_and_resize_backward_boxes(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    boxes: Array | ArrayLike,
    box_indices: Array | ArrayLike,
    *,
    antialias: bool = False,
    layout: Layout = "NCHW",
) -> Array: ...
def multilevel_roi_align(
    features: Sequence[Array | NDArray[Any]],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Array | ArrayLike | None = None,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Array: ...
def multilevel_roi_align_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shapes: Sequence[Sequence[int]],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Array | ArrayLike | None = None,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> list[Array]: ...
def multilevel_roi_align_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Sequence[Array | NDArray[Any]],
    rois: Array | ArrayLike | Sequence[Array],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Array | ArrayLike | None = None,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: Layout = "NCHW",
) -> Array: ...
def roi_align_3d(
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: VolumeLayout = "NCDHW",
    out: None = None,
) -> Array: ...
def roi_align_3d_backward(
    grad_output: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: VolumeLayout = "NCDHW",
    out: None = None,
) -> Array: ...
def roi_align_3d_backward_rois(
    grad_output: Array | NDArray[Any],
    features: Array | NDArray[Any],
    rois: Array | ArrayLike | Sequence[Array],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Array | ArrayLike | None = None,
    layout: VolumeLayout = "NCDHW",
) -> Array: ...
