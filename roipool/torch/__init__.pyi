# Written by scripts/stubs.py: what roipool.torch has, for type checkers.
from collections.abc import Sequence
from typing import Literal, overload

from torch import Tensor

from roipool._layout import Layout, VolumeLayout
from roipool._types import AngleUnit, Method, Mode
from roipool.torch import nn as nn
from roipool.torch._detectron2 import override_detectron2 as override_detectron2
from roipool.torch._onnx import onnx_translations as onnx_translations
from roipool.torch._torchvision import override_torchvision as override_torchvision

def assign_levels(
    rois: Tensor,
    min_level: int,
    max_level: int,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
) -> Tensor: ...
@overload
def roi_pool(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[False] = False,
    out: None = None,
) -> Tensor: ...
@overload
def roi_pool(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[True],
    out: None = None,
) -> tuple[Tensor, Tensor]: ...
def roi_pool_backward(
    grad_output: Tensor,
    argmax: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def roi_average_pool(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def roi_average_pool_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
@overload
def roi_align(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[False] = False,
    out: None = None,
) -> Tensor: ...
@overload
def roi_align(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    return_argmax: Literal[True],
    out: None = None,
) -> tuple[Tensor, Tensor]: ...
def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    argmax: Tensor | None = None,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def roi_align_backward_rois(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def ps_roi_pool(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def ps_roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def ps_roi_align(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def ps_roi_align_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def ps_roi_align_backward_rois(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def precise_roi_pool(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def precise_roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def precise_roi_pool_backward_rois(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def roi_align_rotated(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def roi_align_rotated_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def roi_align_rotated_backward_rois(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def deform_roi_pool(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    offsets: Tensor,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Tensor | None = None,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def deform_roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    offsets: Tensor,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Tensor | None = None,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def deform_roi_pool_backward_rois(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    offsets: Tensor,
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Tensor | None = None,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def deform_roi_pool_backward_offsets(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    offsets: Tensor,
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: Tensor | None = None,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def deform_roi_pool_backward_mask(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    offsets: Tensor,
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def crop_and_resize(
    features: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: int | Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    extrapolation_value: float = 0.0,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def crop_and_resize_backward(
    grad_output: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    input_shape: Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def crop_and_resize_backward_boxes(
    grad_output: Tensor,
    features: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    *,
    antialias: bool = False,
    layout: Layout = "NCHW",
) -> Tensor: ...
def multilevel_roi_align(
    features: Sequence[Tensor],
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Tensor | None = None,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
    out: None = None,
) -> Tensor: ...
def multilevel_roi_align_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shapes: Sequence[Sequence[int]],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Tensor | None = None,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> list[Tensor]: ...
def multilevel_roi_align_backward_rois(
    grad_output: Tensor,
    features: Sequence[Tensor],
    rois: Tensor | Sequence[Tensor],
    spatial_scales: Sequence[float],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Tensor | None = None,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: Layout = "NCHW",
) -> Tensor: ...
def roi_align_3d(
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: VolumeLayout = "NCDHW",
    out: None = None,
) -> Tensor: ...
def roi_align_3d_backward(
    grad_output: Tensor,
    rois: Tensor | Sequence[Tensor],
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: VolumeLayout = "NCDHW",
    out: None = None,
) -> Tensor: ...
def roi_align_3d_backward_rois(
    grad_output: Tensor,
    features: Tensor,
    rois: Tensor | Sequence[Tensor],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Tensor | None = None,
    layout: VolumeLayout = "NCDHW",
) -> Tensor: ...
