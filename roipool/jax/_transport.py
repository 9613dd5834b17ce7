"""How compiled programs reach the kernels: XLA calls a handler of this build, or the host.

The handler needs neither Python nor the GIL. A build without XLA's header has none, nor has a
device that is no CPU: then the program calls back the host, with NumPy arrays, which copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roipool import _cpu
from roipool._arguments import Regions
from roipool._definitions import TRAITS
from roipool._layout import Shape4
from roipool._pooling import pooled_shape
from roipool._requests import Request
from roipool._settings import NON_TEMPORAL_BYTES, check_environment

Results = Sequence[jax.ShapeDtypeStruct]
Array = Any

TARGET = "roipool_cpu"


def _register() -> str:
    """Register the handler; return why there is none, or nothing."""
    handler = _cpu.xla_handler()
    if handler is None:
        return "roipool was built without jaxlib"
    try:
        jax.ffi.register_ffi_target(TARGET, handler, platform="cpu")
    except Exception as error:  # noqa: BLE001 - a jaxlib that this build is too old or new for
        return f"jaxlib refuses it: {error}"
    return ""


WHY_NO_HANDLER = _register()


def transport() -> str:
    """Return in words how programs on a CPU call the kernels."""
    return f"callbacks of the host ({WHY_NO_HANDLER})" if WHY_NO_HANDLER else "handlers of XLA"


def call_handler(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array]:
    """Return the results of a kernel that XLA calls, in a program for a CPU."""
    check_environment()
    if (empty := _without_kernel(kernel, operands, results, request)) is not None:
        return empty
    pooling = request.pooling
    definition, rules = pooling.definition, pooling.rules
    operation = kernel
    if kernel == "maximum_backward" and rules.argmax_is_cell:
        operation = "unpool"
    # In the order of `Integer` and `Real` in kernels/cpu/xla.h.
    integers = [
        _cpu.XLA_OPERATIONS[operation], list(TRAITS).index(definition.name), *definition.sampling,
        definition.aligned, pooling.layout == "NHWC", rules.argmax_is_cell, rules.nan_restarts,
        rules.outside_is_zero, NON_TEMPORAL_BYTES, len(request.scales),
    ]  # fmt: skip
    reals = [definition.angle_scale, pooling.empty_value, rules.lowest]
    scales = [each.definition.scale for each in request.poolings]
    found: Sequence[Array] = jax.ffi.ffi_call(TARGET, tuple(results))(
        *operands, integers=np.array(integers, np.int64), reals=np.array(reals, np.float64),
        scales=np.array(scales, np.float64),
    )  # fmt: skip
    return list(found)


def call_host(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array]:
    """Return the results of a kernel that runs in a callback, in a program for any device."""
    check_environment()
    if (empty := _without_kernel(kernel, operands, results, request)) is not None:
        return empty

    shapes = [each.shape for each in results]

    def compute(*arrays: Any) -> tuple[Any, ...]:
        values = map(np.asarray, arrays)
        if request.scales:
            return PYRAMID_KERNELS[kernel](request, shapes, *values)
        return HOST_KERNELS[kernel](request, shapes[0], *values)

    return list(jax.pure_callback(compute, tuple(results), *operands))


def _without_kernel(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array] | None:
    """Return the results where there is nothing to compute, else None."""
    is_forward = kernel in ("average", "maximum")
    if is_forward and operands[0].shape[0] == 0:  # no image
        fills: list[float] = [request.pooling.empty_value, -1]
    elif request.scales and not _is_empty_pyramid(kernel, operands, results):
        return None
    elif any(0 in array.shape for array in (*operands, *results)):
        fills = [0] * len(results) if request.scales else [0, -1]
    else:
        return None
    return [
        jnp.full(each.shape, fill, each.dtype)
        for each, fill in zip(results, fills[: len(results)], strict=True)
    ]


def _is_empty_pyramid(kernel: str, operands: Sequence[Array], results: Results) -> bool:
    """Return whether a pyramid has no boxes, images or channels; single maps may have no cells."""
    pooled = results[0] if kernel == "average" else operands[0]
    images = results if kernel == "average_backward" else operands[:-3]
    return 0 in pooled.shape or images[-1].shape[0] == 0


# ---- Kernels on the host


def _regions(boxes: Any, indices: Any) -> Regions:
    return Regions(np.ascontiguousarray(boxes), indices.astype(np.int64))


def _average(request: Request, shape: Any, features: Any, boxes: Any, indices: Any) -> Any:
    out = _cpu.empty_array(shape, features.dtype)
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
    out = _cpu.empty_array(shape, features.dtype)
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


HOST_KERNELS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "average": _average,
    "average_backward": _average_backward,
    "box_gradient": _box_gradient,
    "maximum": _maximum,
    "maximum_backward": _maximum_backward,
}


# ---- The same of pyramids


def _levels_of(levels: Any, indices: Any, maps: int) -> tuple[Any, Any]:
    """Return levels, and batch indices: of no image where a level is none of the maps."""
    numbers = levels.astype(np.int64)
    is_level = (numbers >= 0) & (numbers < maps)
    return np.where(is_level, numbers, 0), np.where(is_level, indices, -1)


def _average_levels(request: Request, shapes: Any, *operands: Any) -> Any:
    *features, boxes, indices, levels = operands
    numbers, images = _levels_of(levels, indices, len(features))
    out = _cpu.empty_array(shapes[0], features[0].dtype)
    _cpu.average_levels(features, _regions(boxes, images), numbers, request.poolings, out)
    return (out,)


def _average_levels_backward(request: Request, shapes: Any, *operands: Any) -> Any:
    grad, boxes, indices, levels = operands
    numbers, images = _levels_of(levels, indices, len(shapes))
    outs = [_cpu.empty_array(shape, grad.dtype) for shape in shapes]
    regions = _regions(boxes, images)
    _cpu.average_levels_backward(grad, regions, numbers, request.poolings, outs)
    return tuple(outs)


def _levels_box_gradient(request: Request, shapes: Any, *operands: Any) -> Any:
    grad, *features, boxes, indices, levels = operands
    numbers, images = _levels_of(levels, indices, len(features))
    regions = _regions(boxes, images)
    return (_cpu.average_levels_backward_boxes(grad, features, regions, numbers, request.poolings),)


PYRAMID_KERNELS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "average": _average_levels,
    "average_backward": _average_levels_backward,
    "box_gradient": _levels_box_gradient,
}


def pooled_shape_of(request: Request, shape: Sequence[int], boxes: int) -> Shape4:
    """Return the shape of the values that are pooled from maps of a shape."""
    pooling = request.pooling
    return pooled_shape(shape, boxes, pooling.output_size, pooling.layout)
