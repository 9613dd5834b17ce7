"""torchvision's operators, computed by roipool."""

from __future__ import annotations

import importlib
import math
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from roipool.compat import torchvision as compat
from roipool.torch._mask_overrides import replace_masks_of_torchvision
from roipool.torch._overrides import Kernels, Override, Overriding, library_of, register_kernels
from roipool.torch._torchvision_pyramids import replace_pooling

# ---- torchvision's operators, in terms of roipool's functions


def _cut(rois: Tensor) -> Tensor:
    """Return boxes with their batch indices as torchvision cuts them: one of -0.5 is 0, too."""
    return torch.cat([rois[:, :1].trunc(), rois[:, 1:]], 1)


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Compute ``torchvision::roi_align``."""
    size = (pooled_height, pooled_width)
    return compat.roi_align(input, _cut(rois), size, spatial_scale, sampling_ratio, aligned)


def roi_align_backward(
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
    shape = (batch_size, channels, height, width)
    return compat.roi_align_backward(
        grad, _cut(rois), shape, spatial_scale, sampling_ratio, aligned
    )


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Compute ``torchvision::roi_pool``."""
    size = (pooled_height, pooled_width)
    pooled, argmax = compat.roi_pool(input, _cut(rois), size, spatial_scale, return_argmax=True)
    return pooled, argmax


def roi_pool_backward(
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
    shape = (batch_size, channels, height, width)
    return compat.roi_pool_backward(grad, argmax, _cut(rois), shape)


def _channels_of_bins(pooled: Tensor) -> Tensor:
    """Return the second result of position-sensitive operators: each bin's channel of the maps."""
    channels = torch.arange(math.prod(pooled.shape[1:]), dtype=torch.int32, device=pooled.device)
    return channels.reshape(1, *pooled.shape[1:]).repeat(pooled.shape[0], 1, 1, 1)


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Compute ``torchvision::ps_roi_pool``."""
    size = (pooled_height, pooled_width)
    pooled = compat.ps_roi_pool(input, _cut(rois), size, spatial_scale)
    return pooled, _channels_of_bins(pooled)


def ps_roi_pool_backward(
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
    shape = (batch_size, channels, height, width)
    return compat.ps_roi_pool_backward(grad, _cut(rois), shape, spatial_scale)


def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """Compute ``torchvision::ps_roi_align``."""
    size = (pooled_height, pooled_width)
    pooled = compat.ps_roi_align(input, _cut(rois), size, spatial_scale, sampling_ratio)
    return pooled, _channels_of_bins(pooled)


def ps_roi_align_backward(
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
    shape = (batch_size, channels, height, width)
    return compat.ps_roi_align_backward(grad, _cut(rois), shape, spatial_scale, sampling_ratio)


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
