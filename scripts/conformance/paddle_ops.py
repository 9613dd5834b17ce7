"""Paddle's operators as functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle.vision import ops

paddle.set_device("cpu")


def by_image(function: Callable[..., Any], maps: Any, boxes: Any, *options: Any) -> Any:
    """Call an operator, which takes the boxes of one image after those of another."""
    order = np.argsort(boxes[:, 0], kind="stable")
    counts = np.bincount(boxes[:, 0].astype(int), minlength=maps.shape[0]).astype(np.int32)
    pooled = function(
        maps, paddle.to_tensor(boxes[order, 1:]), paddle.to_tensor(counts), *options
    )  # fmt: skip
    return pooled, order


def in_own_order(pooled: Any, order: Any) -> Any:
    """Return pooled values in the order of the boxes."""
    found = np.empty_like(pooled)
    found[order] = pooled
    return found


def roi_align(
    input: Any, boxes: Any, output_size: Any, spatial_scale: float, sampling_ratio: int,
    aligned: bool,
) -> Any:  # fmt: skip
    """Run paddle.vision.ops.roi_align."""
    maps = paddle.to_tensor(input)
    options = output_size, spatial_scale, sampling_ratio or -1, aligned
    pooled, order = by_image(ops.roi_align, maps, boxes, *options)
    return in_own_order(pooled.numpy(), order)


def roi_align_backward(
    grad_output: Any, boxes: Any, input_shape: Any, spatial_scale: float, sampling_ratio: int,
    aligned: bool,
) -> Any:  # fmt: skip
    """Return the gradient of roi_align."""
    maps = paddle.to_tensor(np.zeros(input_shape, grad_output.dtype), stop_gradient=False)
    options = grad_output.shape[2:], spatial_scale, sampling_ratio or -1, aligned
    pooled, order = by_image(ops.roi_align, maps, boxes, *options)
    (found,) = paddle.grad([pooled], [maps], [paddle.to_tensor(grad_output[order])])
    return found.numpy()


def roi_pool(input: Any, boxes: Any, output_size: Any, spatial_scale: float) -> Any:
    """Run paddle.vision.ops.roi_pool."""
    maps = paddle.to_tensor(input)
    pooled, order = by_image(ops.roi_pool, maps, boxes, output_size, spatial_scale)
    return in_own_order(pooled.numpy(), order)
