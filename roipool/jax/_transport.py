"""How compiled programs reach the kernels: a callback of the host, with NumPy arrays only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from roipool import _cpu
from roipool._arguments import Regions
from roipool._layout import Shape4, channels, pooled_shape
from roipool._requests import Request

Results = Sequence[jax.ShapeDtypeStruct]


def call(
    kernel: str, operands: Sequence[Any], results: Results, request: Request, shape: Shape4 | None
) -> list[Any]:
    """Return the results of a kernel: of the arrays of a program that is being compiled."""
    compute = functools.partial(_on_host, HOST_KERNELS[kernel], request, shape)
    return list(jax.pure_callback(compute, tuple(results), *operands))


def _on_host(
    compute: Callable[..., tuple[Any, ...]],
    request: Request,
    shape: Shape4 | None,
    *operands: Any,
) -> tuple[Any, ...]:
    return compute(request, shape, *map(np.asarray, operands))


def _regions(boxes: Any, indices: Any) -> Regions:
    return Regions(np.ascontiguousarray(boxes), indices.astype(np.int64))


def _average(request: Request, shape: Any, features: Any, boxes: Any, indices: Any) -> Any:
    out = _cpu.empty_array(pooled_shape_of(request, features.shape, len(boxes)), features.dtype)
    _cpu.average(features, _regions(boxes, indices), request.pooling, out)
    return (out,)


def _average_backward(request: Request, shape: Any, grad: Any, boxes: Any, indices: Any) -> Any:
    out = _cpu.empty_array(shape, grad.dtype)
    _cpu.average_backward(grad, _regions(boxes, indices), request.pooling, out)
    return (out,)


def _box_gradient(
    request: Request, shape: Any, grad: Any, features: Any, boxes: Any, indices: Any
) -> Any:
    regions = _regions(boxes, indices)
    return (_cpu.average_backward_boxes(grad, features, regions, request.pooling),)


def _maximum(request: Request, shape: Any, features: Any, boxes: Any, indices: Any) -> Any:
    out = _cpu.empty_array(pooled_shape_of(request, features.shape, len(boxes)), features.dtype)
    regions = _regions(boxes, indices)
    argmax = _cpu.maximum(features, regions, request.pooling, out, return_argmax=True)
    assert argmax is not None
    if argmax.dtype != np.int32:
        raise ValueError(
            f"{request.operation}: a bin's adaptive grid has more than 2**31 - 1 samples; give a "
            "sampling_ratio"
        )
    return out, argmax


def _maximum_backward(
    request: Request, shape: Any, grad: Any, argmax: Any, boxes: Any, indices: Any
) -> Any:
    pooling, regions = request.pooling, _regions(boxes, indices)
    out = _cpu.empty_array(shape, grad.dtype)
    if pooling.rules.argmax_is_cell:
        _cpu.unpool(grad, argmax, regions.batch_indices, pooling.layout, out)
    else:
        _cpu.maximum_backward(grad, argmax, regions, pooling, out)
    return (out,)


def pooled_shape_of(request: Request, shape: Sequence[int], boxes: int) -> Shape4:
    """Return the shape of the values that are pooled from maps of a shape."""
    pooling = request.pooling
    return pooled_shape(boxes, channels(shape, pooling.layout), pooling.output_size, pooling.layout)


HOST_KERNELS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "average": _average,
    "average_backward": _average_backward,
    "box_gradient": _box_gradient,
    "maximum": _maximum,
    "maximum_backward": _maximum_backward,
}
