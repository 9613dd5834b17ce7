"""torchvision's own operators, computed by roipool without changes to a model."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import math
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from roipool._definitions import Definition
from roipool._dtypes import FLOATS
from roipool._layout import Shape4
from roipool.compat import _conventions as conventions
from roipool.torch._families import FAMILIES, Family, Settings, pooling_of
from roipool.torch._fast_path import FastAverage
from roipool.torch._kernels import average, average_backward, maximum, maximum_backward
from roipool.torch._mask_overrides import replace_masks_of_torchvision
from roipool.torch._memory import Bridge, is_channels_last
from roipool.torch._operators import SMALL_CALLS
from roipool.torch._overrides import Kernels, Override, Overriding, library_of, register_kernels
from roipool.torch._torchvision_pyramids import replace_pooling


def _without_bytes(name: str) -> Family:
    """Return the family of an operation, of whose features torchvision refuses bytes."""
    family = copy.copy(FAMILIES[name])
    family.op = dataclasses.replace(family.op, dtypes=FLOATS)
    return family


# The initial value of torchvision's maxima.
ROI_POOL = _without_bytes("roi_pool")
ROI_POOL.max_rules = conventions.CELLS_FROM_LOWEST_FLOAT32
ROI_ALIGN = _without_bytes("roi_align")
PS_ROI_ALIGN = FAMILIES["ps_roi_align"]


# ---- torchvision's operators, in terms of roipool's


def _boxes(rois: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return boxes, batch indices, which torchvision cuts to whole numbers, and no levels."""
    return rois[:, 1:], rois[:, 0].trunc(), None


def _gradient_settings(
    family: Family, placing: tuple[Any, ...], grad: Tensor, shape: Shape4
) -> Settings:
    """Return the settings of a gradient with respect to maps of a shape."""
    return Settings(family, placing, shapes=(shape,), channels_last=is_channels_last(grad))


def roi_align(
    bridge: Bridge,
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Compute ``torchvision::roi_align``."""
    sampling = (max(sampling_ratio, 0),) * 2
    size = (pooled_height, pooled_width)
    settings = Settings(ROI_ALIGN, (spatial_scale, sampling, aligned), size)
    return average(bridge, settings, *_boxes(rois), input)


def small_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor | None:
    """Return the result of ``torchvision::roi_align`` on the fast path, or None."""
    sampling = (max(sampling_ratio, 0),) * 2
    placing = spatial_scale, sampling, aligned
    return fast_roi_align(placing, (pooled_height, pooled_width))(input, rois)


@functools.lru_cache(maxsize=256)
def fast_roi_align(placing: tuple[Any, ...], size: tuple[int, int]) -> FastAverage:
    """Return the fast path of some options; batch indices are cut to whole numbers."""
    pooling = pooling_of(ROI_ALIGN, False, size, placing)
    return FastAverage(pooling, ROI_ALIGN.op.columns, cuts=True)


SMALL_CALLS[roi_align] = small_roi_align


def roi_align_backward(
    bridge: Bridge,
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Compute ``torchvision::_roi_align_backward``."""
    sampling = (max(sampling_ratio, 0),) * 2
    settings = _gradient_settings(
        ROI_ALIGN, (spatial_scale, sampling, aligned), grad, (batch_size, channels, height, width)
    )
    (gradient,) = average_backward(bridge, settings, *_boxes(rois), grad)
    return gradient


def roi_pool(
    bridge: Bridge,
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> tuple[Tensor, Tensor]:
    """Compute ``torchvision::roi_pool``."""
    settings = Settings(ROI_POOL, (spatial_scale,), (pooled_height, pooled_width))
    return maximum(bridge, settings, *_boxes(rois), input)


def roi_pool_backward(
    bridge: Bridge,
    grad: Tensor,
    rois: Tensor,
    argmax: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """Compute ``torchvision::_roi_pool_backward``."""
    settings = _gradient_settings(
        ROI_POOL, (spatial_scale,), grad, (batch_size, channels, height, width)
    )
    (gradient,) = maximum_backward(bridge, settings, *_boxes(rois), grad, argmax)
    return gradient


# ---- Position-sensitive ones, whose second result is the channel that each bin is pooled from


def _position_sensitive_pool(definition: Definition) -> Family:
    family = copy.copy(FAMILIES["ps_roi_pool"])
    family.define = lambda spatial_scale, group_size: definition._replace(scale=spatial_scale)
    return family


PS_ROI_POOL = _position_sensitive_pool(conventions.TORCHVISION_PS_ROI_POOL)
PS_ROI_POOL_GRADIENT = _position_sensitive_pool(conventions.TORCHVISION_PS_ROI_POOL_GRADIENT)


def _channels_of_bins(pooled: Tensor) -> Tensor:
    channels = torch.arange(math.prod(pooled.shape[1:]), dtype=torch.int32, device=pooled.device)
    return channels.reshape(1, *pooled.shape[1:]).repeat(pooled.shape[0], 1, 1, 1)


def ps_roi_pool(
    bridge: Bridge,
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> tuple[Tensor, Tensor]:
    """Compute ``torchvision::ps_roi_pool``."""
    settings = Settings(
        PS_ROI_POOL, (spatial_scale, conventions.EACH_BIN), (pooled_height, pooled_width)
    )
    pooled = average(bridge, settings, *_boxes(rois), input)
    return pooled, _channels_of_bins(pooled)


def ps_roi_pool_backward(
    bridge: Bridge,
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """Compute ``torchvision::_ps_roi_pool_backward``."""
    placing = (spatial_scale, conventions.EACH_BIN)
    shape = (batch_size, channels, height, width)
    settings = _gradient_settings(PS_ROI_POOL_GRADIENT, placing, grad, shape)
    (gradient,) = average_backward(bridge, settings, *_boxes(rois), grad)
    return gradient


def ps_roi_align(
    bridge: Bridge,
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """Compute ``torchvision::ps_roi_align``."""
    sampling = (max(sampling_ratio, 0),) * 2
    size = (pooled_height, pooled_width)
    settings = Settings(PS_ROI_ALIGN, (spatial_scale, sampling, True, conventions.EACH_BIN), size)
    pooled = average(bridge, settings, *_boxes(rois), input)
    if sampling_ratio <= 0:
        _set_nan_without_samples(pooled, rois, spatial_scale)
    return pooled, _channels_of_bins(pooled)


def _set_nan_without_samples(pooled: Tensor, rois: Tensor, spatial_scale: float) -> None:
    """Set averages of no samples to NaN: as `roipool.compat.torchvision` does."""
    real = torch.float64 if rois.dtype is torch.float64 else torch.float32
    cells = rois[:, 1:].to(real) * spatial_scale - 0.5
    bins = torch.tensor([pooled.shape[3], pooled.shape[2]], dtype=real, device=rois.device)
    counts = ((cells[:, 2:] - cells[:, :2]) / bins).ceil()
    is_empty = counts.isfinite().all(dim=1) & (counts == 0).any(dim=1)
    pooled.masked_fill_(is_empty[:, None, None, None], math.nan)


def ps_roi_align_backward(
    bridge: Bridge,
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """Compute ``torchvision::_ps_roi_align_backward``."""
    sampling = (max(sampling_ratio, 0),) * 2
    placing = (spatial_scale, sampling, True, conventions.EACH_BIN)
    shape = (batch_size, channels, height, width)
    settings = _gradient_settings(PS_ROI_ALIGN, placing, grad, shape)
    (gradient,) = average_backward(bridge, settings, *_boxes(rois), grad)
    return gradient


KERNELS: Kernels = {
    "roi_align": roi_align,
    "_roi_align_backward": roi_align_backward,
    "roi_pool": roi_pool,
    "_roi_pool_backward": roi_pool_backward,
    "ps_roi_align": ps_roi_align,
    "_ps_roi_align_backward": ps_roi_align_backward,
    "ps_roi_pool": ps_roi_pool,
    "_ps_roi_pool_backward": ps_roi_pool_backward,
}


# ---- The override


def _install(stack: ExitStack) -> None:
    library = library_of(stack, "torchvision", "IMPL")
    devices = register_kernels("torchvision", library, KERNELS)
    _keep_to_the_operator(stack, devices)
    replace_pooling(stack, devices)
    replace_masks_of_torchvision(stack, devices)


def _keep_to_the_operator(stack: ExitStack, devices: set[str]) -> None:
    """Let torchvision's ``roi_align`` call its operator in torch's deterministic mode, too.

    On GPUs it compiles a function of tensor operations there, where a compiler is supported, as its
    own gradient uses atomics. Ours has none. On other types of `devices` nothing changes.
    """
    # By its name, because torchvision.ops.roi_align is the function.
    module: Any = importlib.import_module("torchvision.ops.roi_align")
    supported = getattr(module, "is_compile_supported", None)
    if supported is None:  # of a torchvision that does not choose so
        return

    def is_compile_supported(device: Any) -> Any:
        return torch.device(device).type not in devices and supported(device)

    module.is_compile_supported = is_compile_supported
    stack.callback(setattr, module, "is_compile_supported", supported)


OVERRIDE = Override("torchvision's ROI operators", _install)


def override_torchvision() -> Overriding:
    """Let roipool compute torchvision's ROI operators, forward and backward.

    They are ``roi_align``, ``roi_pool``, ``ps_roi_align`` and ``ps_roi_pool``. So are two functions
    of its Mask R-CNN, which paste masks into the picture and cut targets out:
    ``paste_masks_in_image`` and ``project_masks_on_boxes``. Programs that are traced or compiled
    keep those.

    Within the context torchvision's own operators, on the CPU, and on GPUs where there is CuPy, are
    computed by roipool, for all threads of the process; after it by torchvision again. Models stay
    as they are: autograd, autocast, export and TorchScript go on as before. It is logged (INFO), as
    numbers change by a few units in the last place. Contexts may be nested;
    ``override_torchvision().enable()`` opens one for the rest of the process. Where roipool cannot
    compute on GPUs, as CuPy is missing or made for another CUDA, or PyTorch for ROCm, torchvision
    goes on computing there, and the log has a warning of it.

    detectron2's ``ROIAlign`` and ``ROIPool`` call these operators, and are computed by roipool,
    too; so is mmcv's ``RoIAlign`` with ``use_torchvision=True``.

    torchvision's ``MultiScaleRoIAlign`` pools all maps of a pyramid in one call instead of one for
    each level. TorchScript and traced programs compute it as it is written, level by level.

    Within ``torch.use_deterministic_algorithms(True)`` torchvision's ``roi_align`` leaves its
    operator on GPUs for slower code; within the context it does not, as roipool's gradients are
    deterministic.

    A box whose batch index names no image, for which torchvision reads other memory, is a
    ValueError. NaN and infinite boxes pool nothing.

    Raises
    ------
    ImportError
        If torchvision is not installed.

    See Also
    --------
    override_detectron2

    Examples
    --------
    >>> import roipool.torch
    >>> with roipool.torch.override_torchvision():  # doctest: +SKIP
    ...     detections = model(images)
    """
    import torchvision  # noqa: F401  # registers the operators

    return Overriding(OVERRIDE)
