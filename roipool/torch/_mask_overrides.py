"""Functions of other libraries that paste and cut masks, computed by roipool in overrides.

They are functions of Python, not operators: what replaces them is put in the modules that call
them. Traced and exported programs keep the original, whose operators their formats know.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor

from roipool._masks.crop import crop_masks
from roipool.compat import detectron2, torchvision
from roipool.torch._operators import BRIDGES

OUR_DEVICES = {device.lower() for device in BRIDGES}

Function = Callable[..., Any]


def is_ours(*tensors: Any) -> bool:
    """Return whether roipool computes a call on such tensors."""
    if torch.jit.is_tracing() or torch.compiler.is_compiling():
        return False
    return all(isinstance(each, Tensor) and each.device.type in OUR_DEVICES for each in tensors)


def replace(stack: ExitStack, function: str, own: Function, *modules: Any) -> None:
    """Put a function in the place of that of modules, or a class, until the stack is closed.

    `own` gets the original before its arguments.
    """
    for module in modules:
        original = getattr(module, function, None)
        if original is not None:
            setattr(module, function, _in_place_of(original, own))
            stack.callback(setattr, module, function, original)


def _in_place_of(original: Function, own: Function) -> Function:
    """Return a function that calls another with the original; TorchScript compiles the original."""

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return own(original, *args, **kwargs)

    replaced.__dict__["__script_if_tracing_wrapper"] = True
    replaced.__dict__["__original_fn"] = original
    return replaced


# ---- torchvision


def _paste_masks_in_image(
    original: Function, masks: Any, boxes: Any, img_shape: Any, padding: int = 1
) -> Any:
    if not is_ours(masks, boxes):
        return original(masks, boxes, img_shape, padding)
    return torchvision.paste_masks_in_image(masks, boxes.detach(), tuple(img_shape), padding)


def _project_masks_on_boxes(
    original: Function,
    gt_masks: Any,
    boxes: Any,
    matched_idxs: Any,
    M: int,  # noqa: N803
) -> Any:
    is_known = is_ours(gt_masks, boxes, matched_idxs) and not gt_masks.requires_grad
    if not is_known or boxes.dtype is torch.float64:
        return original(gt_masks, boxes, matched_idxs, M)
    targets = torchvision.project_masks_on_boxes(gt_masks, boxes.detach(), matched_idxs, M)
    return targets.to(boxes.dtype)


def replace_masks_of_torchvision(stack: ExitStack) -> None:
    """Let roipool paste and cut the masks of torchvision's Mask R-CNN until the stack is closed."""
    detection = "torchvision.models.detection"
    heads = importlib.import_module(f"{detection}.roi_heads")
    transform = importlib.import_module(f"{detection}.transform")
    replace(stack, "paste_masks_in_image", _paste_masks_in_image, heads, transform)
    replace(stack, "project_masks_on_boxes", _project_masks_on_boxes, heads)


# ---- detectron2


def _paste_like_detectron2(
    original: Function, masks: Any, boxes: Any, image_shape: Any, threshold: float = 0.5
) -> Any:
    if not is_ours(masks, getattr(boxes, "tensor", boxes)) or len(masks) == 0:
        return original(masks, boxes, image_shape, threshold)
    with torch.no_grad():  # bool and bytes have no gradients
        return detectron2.paste_masks_in_image(masks, boxes, tuple(image_shape), threshold)


def _crop_and_resize(original: Function, masks: Any, boxes: Tensor, mask_size: int) -> Any:
    if not is_ours(masks.tensor, boxes) or len(boxes) != len(masks.tensor):
        return original(masks, boxes, mask_size)
    numbers = torch.arange(len(boxes), device=boxes.device)
    with torch.no_grad():
        return crop_masks(masks.tensor, boxes, numbers, mask_size, threshold=0.5)


def replace_masks_of_detectron2(stack: ExitStack) -> None:
    """Let roipool paste and cut detectron2's masks until the stack is closed, if it is there."""
    with suppress(ImportError):
        layers = importlib.import_module("detectron2.layers")
        functions = importlib.import_module("detectron2.layers.mask_ops")
        replace(stack, "paste_masks_in_image", _paste_like_detectron2, layers, functions)
        masks = importlib.import_module("detectron2.structures.masks")
        replace(stack, "crop_and_resize", _crop_and_resize, masks.BitMasks)
