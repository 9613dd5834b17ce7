"""torchvision's ``MultiScaleRoIAlign`` as one call, within ``override_torchvision``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from roipool.ops.multilevel_roi_align import multilevel_roi_align
from roipool.torch._memory import FLOATS


def replace_pooling(stack: ExitStack, devices: Collection[str]) -> None:
    """Let torchvision's module pool all maps on `devices` in one call until the stack is closed.

    Its own function computes what it did before: on other devices, for one map, where a program is
    traced for ONNX or TorchScript, and for whatever was recorded and runs after the context.
    """
    module: Any = importlib.import_module("torchvision.ops.poolers")
    original = getattr(module, "_multiscale_roi_align", None)
    if original is None:  # of a torchvision whose module is written in another way
        return
    stack.callback(setattr, module, "_multiscale_roi_align", original)

    @functools.wraps(original)
    def pool(
        x_filtered: Sequence[Tensor],
        boxes: Sequence[Tensor],
        output_size: Sequence[int],
        sampling_ratio: int,
        scales: Sequence[float] | None,
        mapper: Any,
    ) -> Any:
        is_ours = module._multiscale_roi_align is pool and are_poolable(x_filtered, boxes, devices)
        if not is_ours or scales is None or mapper is None:
            return original(x_filtered, boxes, output_size, sampling_ratio, scales, mapper)
        rois = module._convert_to_roi_format([each.detach() for each in boxes])
        return pool_pyramid(x_filtered, rois, mapper(boxes), output_size, sampling_ratio, scales)

    # torch.jit.script compiles the function that this returns.
    pool.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    module._multiscale_roi_align = pool


def are_poolable(maps: Any, boxes: Any, devices: Collection[str]) -> bool:
    """Return whether roipool computes these maps in one call."""
    if torch.jit.is_tracing() or torch.jit.is_scripting() or len(maps) < 2 or not len(boxes):
        return False
    return all(each.device.type in devices and each.dtype in FLOATS for each in maps)


def pool_pyramid(
    maps: Sequence[Tensor],
    rois: Tensor,
    levels: Tensor,
    output_size: Sequence[int],
    sampling_ratio: int,
    scales: Sequence[float],
) -> Any:
    """Return the pooled values of all maps in the type of the first; 0 for boxes without a level.

    Under autocast maps may come from layers of several types.
    """
    known = (levels >= 0) & (levels < len(maps))
    rois[:, 1:] = rois[:, 1:].where(known[:, None], torch.nan)
    return multilevel_roi_align(
        [each.to(maps[0].dtype) for each in maps],
        rois,
        tuple(output_size),
        tuple(scales)[: len(maps)],
        max(sampling_ratio, 0),
        levels=levels.clamp(0, len(maps) - 1),
        aligned=False,
    )
