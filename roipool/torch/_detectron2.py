"""detectron2's operators for rotated boxes, computed by roipool."""

from __future__ import annotations

import importlib
from contextlib import ExitStack, suppress

import torch
from torch import Tensor

from roipool.compat import _detectron2_rotated as compat
from roipool.torch._mask_overrides import replace_masks_of_detectron2
from roipool.torch._overrides import Kernels, Override, Overriding, library_of, register_kernels

# ---- detectron2's operators, in terms of roipool's functions


def roi_align_rotated_forward(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> Tensor:
    """Compute ``detectron2::roi_align_rotated_forward``."""
    size = (pooled_height, pooled_width)
    return compat.roi_align_rotated(input, rois, size, spatial_scale, sampling_ratio)


def roi_align_rotated_backward(
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
) -> Tensor:
    """Compute ``detectron2::roi_align_rotated_backward``."""
    shape = (batch_size, channels, height, width)
    return compat.roi_align_rotated_backward(grad, rois, shape, spatial_scale, sampling_ratio)


KERNELS: Kernels = {
    "roi_align_rotated_forward": roi_align_rotated_forward,
    "roi_align_rotated_backward": roi_align_rotated_backward,
}
_BINS = "float spatial_scale, int pooled_height, int pooled_width"
SCHEMAS = {
    "roi_align_rotated_forward": (
        f"(Tensor input, Tensor rois, {_BINS}, int sampling_ratio) -> Tensor"
    ),
    "roi_align_rotated_backward": (
        f"(Tensor grad, Tensor rois, {_BINS}, int batch_size, int channels, int height, int width, "
        "int sampling_ratio) -> Tensor"
    ),
}


# ---- The override


def _install(stack: ExitStack) -> None:
    with suppress(ImportError):  # it defines the operators, where it was compiled
        importlib.import_module("detectron2._C")
    library = library_of(stack, "detectron2", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        if not hasattr(torch.ops.detectron2, name):
            library.define(name + schema)
    devices = register_kernels("detectron2", library, KERNELS)
    replace_masks_of_detectron2(stack, devices)


OVERRIDE = Override("detectron2's operators of rotated boxes", _install)


def override_detectron2() -> Overriding:
    """Let roipool compute detectron2's ``ROIAlignRotated``, forward and backward.

    Within the context ``torch.ops.detectron2.roi_align_rotated_forward`` and ``_backward``, on the
    CPU, and on GPUs where there is CuPy, are computed by roipool, for all threads of the process.
    detectron2's compiled part, ``detectron2._C``, need not be there: where it is not, the operators
    exist within the context only. It is logged (INFO). Contexts may be nested.
    ``override_detectron2().enable()`` opens one for the rest of the process.

    Its masks are pasted by roipool, too (``paste_masks_in_image``), and cut out as targets
    (``BitMasks.crop_and_resize``).

    detectron2's other layers of regions, ``ROIAlign`` and ``ROIPool``, are torchvision's operators:
    for them there is :func:`override_torchvision`.

    A box whose batch index names no image is a ValueError. float16 and bfloat16 maps are taken,
    too; detectron2's layer converts float16 maps itself.

    See Also
    --------
    override_torchvision

    Examples
    --------
    >>> import roipool.torch
    >>> with roipool.torch.override_detectron2():  # doctest: +SKIP
    ...     instances = model(inputs)
    """
    return Overriding(OVERRIDE)
