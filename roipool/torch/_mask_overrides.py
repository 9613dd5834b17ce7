"""Functions of other libraries that paste and cut masks, computed by roipool in overrides.

They are functions of Python, not operators: what replaces them is put in the modules that call
them. Traced and exported programs keep the originals, whose operators their formats know.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor

from roipool._masks.crop import crop_masks
from roipool.compat import detectron2, torchvision

Function = Callable[..., Any]


class Masks:
    """The functions on some types of devices; each gets the original before its arguments."""

    def __init__(self, devices: Collection[str]) -> None:
        self._devices = devices

    def is_ours(self, *tensors: Any) -> bool:
        """Return whether roipool computes a call on such tensors."""
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            return False
        return all(
            isinstance(each, Tensor) and each.device.type in self._devices for each in tensors
        )

    def paste_like_torchvision(
        self, original: Function, masks: Any, boxes: Any, img_shape: Any, padding: int = 1
    ) -> Any:
        """Compute ``paste_masks_in_image`` of torchvision's Mask R-CNN."""
        if not self.is_ours(masks, boxes):
            return original(masks, boxes, img_shape, padding)
        return torchvision.paste_masks_in_image(masks, boxes.detach(), tuple(img_shape), padding)

    def project_masks_on_boxes(
        self,
        original: Function,
        gt_masks: Any,
        boxes: Any,
        matched_idxs: Any,
        M: int,  # noqa: N803
    ) -> Any:
        """Compute ``project_masks_on_boxes`` of torchvision's Mask R-CNN."""
        is_known = self.is_ours(gt_masks, boxes, matched_idxs) and not gt_masks.requires_grad
        if not is_known or boxes.dtype is torch.float64:
            return original(gt_masks, boxes, matched_idxs, M)
        targets = torchvision.project_masks_on_boxes(gt_masks, boxes.detach(), matched_idxs, M)
        return targets.to(boxes.dtype)

    def paste_like_detectron2(
        self, original: Function, masks: Any, boxes: Any, image_shape: Any, threshold: float = 0.5
    ) -> Any:
        """Compute detectron2's ``paste_masks_in_image``."""
        if not self.is_ours(masks, getattr(boxes, "tensor", boxes)) or len(masks) == 0:
            return original(masks, boxes, image_shape, threshold)
        with torch.no_grad():  # bool and bytes have no gradients
            return detectron2.paste_masks_in_image(masks, boxes, tuple(image_shape), threshold)

    def crop_and_resize(self, original: Function, masks: Any, boxes: Any, mask_size: int) -> Any:
        """Compute the method of detectron2's ``BitMasks``."""
        if not self.is_ours(masks.tensor, boxes) or len(boxes) != len(masks.tensor):
            return original(masks, boxes, mask_size)
        numbers = torch.arange(len(boxes), device=boxes.device)
        with torch.no_grad():
            return crop_masks(masks.tensor, boxes, numbers, mask_size, threshold=0.5)


def replace_masks_of_torchvision(stack: ExitStack, devices: Collection[str]) -> None:
    """Let roipool paste and cut the masks of torchvision's Mask R-CNN until the stack is closed."""
    detection, own = "torchvision.models.detection", Masks(devices)
    heads = importlib.import_module(f"{detection}.roi_heads")
    transform = importlib.import_module(f"{detection}.transform")
    _replace(stack, "paste_masks_in_image", own.paste_like_torchvision, heads, transform)
    _replace(stack, "project_masks_on_boxes", own.project_masks_on_boxes, heads)


def replace_masks_of_detectron2(stack: ExitStack, devices: Collection[str]) -> None:
    """Let roipool paste and cut detectron2's masks until the stack is closed, if it is there."""
    own = Masks(devices)
    with suppress(ImportError):
        layers = importlib.import_module("detectron2.layers")
        functions = importlib.import_module("detectron2.layers.mask_ops")
        _replace(stack, "paste_masks_in_image", own.paste_like_detectron2, layers, functions)
        masks = importlib.import_module("detectron2.structures.masks")
        _replace(stack, "crop_and_resize", own.crop_and_resize, masks.BitMasks)


def _replace(stack: ExitStack, function: str, own: Function, *owners: Any) -> None:
    """Put a function in the place of that of modules, or a class, until the stack is closed."""
    for owner in owners:
        original = getattr(owner, function, None)
        if original is not None:
            setattr(owner, function, _in_place_of(original, own))
            stack.callback(setattr, owner, function, original)


def _in_place_of(original: Function, own: Function) -> Function:
    """Return a function that calls another with the original, which TorchScript compiles."""

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return own(original, *args, **kwargs)

    replaced.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    return replaced
