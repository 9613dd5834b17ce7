"""JAX primitives for the kernels, with rules for derivatives of either mode and for batches.

This file alone uses what JAX does not promise to keep: ``jax.extend.core.Primitive`` and the tables
of rules in ``jax.interpreters``.

An average is linear in the features, and so are its gradients: `average`, its transpose
`average_backward` and `box_gradient` are closed under differentiation by features. A maximum is
linear once its argmax is known: `values_at` and `maximum_backward` are each other's transposes.
What changes with the boxes is linear in their change, and JAX transposes it before it computes it:
`box_change` and `box_change_backward` stand for it. They have no kernels, so that forward mode
through boxes is a NotImplementedError, never a silent zero.

All primitives take boxes (K, 4) x1, y1, x2, y2, or (K, 5) with an angle, in float64 for float64
maps, else float32, and int32 batch indices; -1 is no image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from roipool._layout import AXES, Shape4, cells
from roipool._requests import Request
from roipool.jax import _transport
from roipool.jax._transport import pooled_shape_of

Array = Any

# What an array of a primitive is: which of its axes a batch can be folded into.
MAPS, POOLED, BOXES, INDICES = "maps", "pooled", "boxes", "indices"


class Kernel(NamedTuple):
    """A primitive: the roles of its operands and results, and its rules.

    `jvp` gets the request, the shape of the maps that it returns or None, primals and tangents, and
    returns the results and their tangents; `transposes`, by operand, the cotangent and operands.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    jvp: Callable[..., tuple[Any, Any]]
    transposes: dict[int, Callable[..., Array]]


# ---- Calling


def bind(name: str, request: Request, *operands: Array, shape: Shape4 | None = None) -> Any:
    """Compute a primitive; `shape` is that of the maps that it returns, if it does."""
    results = PRIMITIVES[name].bind(*operands, request=request, shape=shape)
    return results[0] if len(results) == 1 else tuple(results)


def _shapes(kernel: Kernel, operands: Sequence[Any], request: Request, shape: Any) -> list[Any]:
    """Return the shape and dtype of each result."""
    boxes = operands[-2]
    given = dict(zip(kernel.operands, operands, strict=True))
    if MAPS in given:
        pooled = pooled_shape_of(request, given[MAPS].shape, boxes.shape[0])
    else:
        pooled = given[POOLED].shape
    values = given[MAPS] if MAPS in given else operands[kernel.operands.index(POOLED)]
    found = {
        MAPS: (shape, values.dtype), POOLED: (pooled, values.dtype),
        BOXES: (boxes.shape, boxes.dtype),
    }  # fmt: skip
    shapes = [found[role] for role in kernel.results]
    if kernel.name == "maximum":
        shapes[1] = (pooled, jnp.int32)
    return [jax.ShapeDtypeStruct(*each) for each in shapes]


def _values_at(request: Request, maps: Array, argmax: Array, boxes: Array, indices: Array) -> Any:
    """Return the values of maps where an argmax says; 0 where it is -1."""
    pooling = request.pooling
    if not pooling.rules.argmax_is_cell:
        raise request.refusal("second derivatives, nor forward mode, of a maximum of samples")
    image = indices[:, None, None, None]
    channel_axis = AXES[pooling.layout][0]
    channel = jax.lax.broadcasted_iota(jnp.int32, argmax.shape, channel_axis)
    if pooling.layout == "NHWC":
        flat = maps.reshape(maps.shape[0], cells(maps.shape, "NHWC"), maps.shape[3])
        where: Any = (image, argmax, channel)
    else:
        flat = maps.reshape(*maps.shape[:2], cells(maps.shape, "NCHW"))
        where = (image, channel, argmax)
    values = flat.at[where].get(mode="fill", fill_value=0)
    return jnp.where((argmax < 0) | (image < 0), jnp.zeros_like(values), values)


def _compute(
    transport: Callable[..., list[Array]], kernel: Kernel, *operands: Array, request: Request,
    shape: Any,
) -> list[Array]:  # fmt: skip
    """Compute a primitive within a program that is being compiled."""
    if kernel.name == "values_at":
        return [_values_at(request, *operands)]
    if kernel.name.startswith("box_change"):
        raise request.refusal("derivatives in forward mode with respect to boxes")
    return transport(kernel.name, operands, _shapes(kernel, operands, request, shape), request)


# ---- Derivatives


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def _zero(like: Array) -> Any:
    is_float = jnp.issubdtype(like.dtype, jnp.floating)
    return ad.Zero(ShapedArray(like.shape, like.dtype if is_float else jax.dtypes.float0))


def _total(like: Array, parts: Sequence[Array]) -> Any:
    return sum(parts[1:], parts[0]) if parts else _zero(like)


def _refuse_moved(request: Request, box_change: Any, what: str) -> None:
    if request.moves_with_boxes and not _is_zero(box_change):
        raise request.refusal(what)


def _average_jvp(request: Request, shape: Any, primals: Any, tangents: Any) -> Any:
    features, *at = primals
    change, box_change, _ = tangents
    result, parts = bind("average", request, features, *at), []
    if not _is_zero(change):
        parts.append(bind("average", request.of_tangent, change, *at))
    if request.moves_with_boxes and not _is_zero(box_change):
        parts.append(bind("box_change", request.of_tangent, box_change, features, *at))
    return result, _total(result, parts)


def _average_backward_jvp(request: Request, shape: Any, primals: Any, tangents: Any) -> Any:
    grad, *at = primals
    change, box_change, _ = tangents
    result, parts = bind("average_backward", request, grad, *at, shape=shape), []
    if not _is_zero(change):
        parts.append(bind("average_backward", request, change, *at, shape=shape))
    if request.moves_with_boxes and not _is_zero(box_change):
        parts.append(bind("box_change_backward", request, box_change, grad, *at, shape=shape))
    return result, _total(result, parts)


SECOND = "second derivatives through boxes"


def _box_gradient_jvp(request: Request, shape: Any, primals: Any, tangents: Any) -> Any:
    grad, features, *at = primals
    grad_change, change, box_change, _ = tangents
    _refuse_moved(request, box_change, SECOND)
    result, parts = bind("box_gradient", request, *primals), []
    if not _is_zero(grad_change):
        parts.append(bind("box_gradient", request, grad_change, features, *at))
    if not _is_zero(change):
        parts.append(bind("box_gradient", request, grad, change, *at))
    return result, _total(result, parts)


def _box_change_jvp(request: Request, *_: Any) -> Any:
    raise request.refusal(SECOND)


OF_MAXIMUM = "gradient of a maximum of samples with respect to boxes"


def _maximum_jvp(request: Request, shape: Any, primals: Any, tangents: Any) -> Any:
    change, box_change, _ = tangents
    _refuse_moved(request, box_change, OF_MAXIMUM)
    values, argmax = bind("maximum", request, *primals)
    moved = _zero(values)
    if not _is_zero(change):
        moved = bind("values_at", request.of_tangent, change, argmax, *primals[1:])
    return (values, argmax), (moved, _zero(argmax))


def _linear_once_chosen(name: str) -> Callable[..., Any]:
    """Return the rule of what is linear in its first operand, where an argmax is given."""

    def jvp(request: Request, shape: Any, primals: Any, tangents: Any) -> Any:
        change, _, box_change, _ = tangents
        _refuse_moved(request, box_change, OF_MAXIMUM)
        result, parts = bind(name, request, *primals, shape=shape), []
        if not _is_zero(change):
            parts.append(bind(name, request, change, *primals[1:], shape=shape))
        return result, _total(result, parts)

    return jvp


# Transposes get the request, the shape, the cotangent, and the operands: None where it is linear.


def _refuse_second(request: Request, *_: Any) -> Array:
    raise request.refusal(SECOND)


def _average_transpose(request: Request, features: Any, cotangent: Any, *at: Any) -> Array:
    return bind("average_backward", request, cotangent, *at, shape=features.shape)


def _average_backward_transpose(request: Request, grad: Any, cotangent: Any, *at: Any) -> Array:
    return bind("average", request, cotangent, *at)


def _box_change_transpose(request: Request, change: Any, cotangent: Any, *more: Any) -> Array:
    return bind("box_gradient", request, cotangent, *more)


def _box_change_backward_transpose(
    request: Request, change: Any, cotangent: Any, grad: Any, *at: Any
) -> Array:
    return bind("box_gradient", request, grad, cotangent, *at)


def _maximum_backward_transpose(request: Request, grad: Any, cotangent: Any, *more: Any) -> Array:
    return bind("values_at", request, cotangent, *more)


def _values_at_transpose(request: Request, maps: Any, cotangent: Any, *more: Any) -> Array:
    return bind("maximum_backward", request, cotangent, *more, shape=maps.shape)


KERNELS = [
    Kernel("average", (MAPS, BOXES, INDICES), (POOLED,), _average_jvp, {0: _average_transpose}),
    Kernel(
        "average_backward", (POOLED, BOXES, INDICES), (MAPS,), _average_backward_jvp,
        {0: _average_backward_transpose},
    ),
    Kernel(
        "box_gradient", (POOLED, MAPS, BOXES, INDICES), (BOXES,), _box_gradient_jvp,
        {0: _refuse_second, 1: _refuse_second},
    ),
    Kernel(
        "box_change", (BOXES, MAPS, BOXES, INDICES), (POOLED,), _box_change_jvp,
        {0: _box_change_transpose, 1: _refuse_second},
    ),
    Kernel(
        "box_change_backward", (BOXES, POOLED, BOXES, INDICES), (MAPS,), _box_change_jvp,
        {0: _box_change_backward_transpose, 1: _refuse_second},
    ),
    Kernel("maximum", (MAPS, BOXES, INDICES), (POOLED, POOLED), _maximum_jvp, {}),
    Kernel(
        "maximum_backward", (POOLED, POOLED, BOXES, INDICES), (MAPS,),
        _linear_once_chosen("maximum_backward"), {0: _maximum_backward_transpose},
    ),
    Kernel(
        "values_at", (MAPS, POOLED, BOXES, INDICES), (POOLED,), _linear_once_chosen("values_at"),
        {0: _values_at_transpose},
    ),
]  # fmt: skip


# ---- Batches: one call, its batch folded into channels, or into boxes and images


def _to_channels(role: str, value: Array, dim: int | None, batch: int, axis: int) -> Array:
    """Return (N, B * C, ...) of maps or pooled values with a batch, (N, H, W, B * C) for NHWC."""
    if role in (BOXES, INDICES):
        return value
    value = _batch_first(value, dim, batch)
    value = jnp.moveaxis(value, 0, axis)
    return value.reshape(*value.shape[:axis], -1, *value.shape[axis + 2 :])


def _batch_first(value: Array, dim: int | None, batch: int) -> Array:
    if dim is None:
        return jnp.broadcast_to(value, (batch, *value.shape))
    return jnp.moveaxis(value, dim, 0)


def _times(shape: Shape4 | None, batch: int, axis: int) -> Shape4 | None:
    """Return a shape with one of its sizes `batch` times as large."""
    if shape is None:
        return None
    sizes = [size * batch if number == axis else size for number, size in enumerate(shape)]
    return (sizes[0], sizes[1], sizes[2], sizes[3])


def _fold_into_channels(
    kernel: Kernel, batch: int, operands: Any, dims: Any, request: Request, shape: Any
) -> Any:
    axis = AXES[request.pooling.layout][0]
    folded = [
        _to_channels(role, value, dim, batch, axis)
        for role, value, dim in zip(kernel.operands, operands, dims, strict=True)
    ]
    results = PRIMITIVES[kernel.name].bind(
        *folded, request=request, shape=_times(shape, batch, axis)
    )
    sizes = [each.shape for each in results]
    unfolded = [
        each.reshape(*size[:axis], batch, size[axis] // batch, *size[axis + 1 :])
        for each, size in zip(results, sizes, strict=True)
    ]
    return unfolded, [axis] * len(unfolded)


def _fold_into_rows(
    kernel: Kernel, batch: int, operands: Any, dims: Any, request: Request, shape: Any
) -> Any:
    images = 0 if shape is None else shape[0]
    folded = []
    for role, value, dim in zip(kernel.operands, operands, dims, strict=True):
        if role == MAPS and dim is None:
            folded.append(value)  # all calls share them
            continue
        first = _batch_first(value, dim, batch)
        if role == MAPS:
            images = first.shape[1]
        elif role == INDICES:
            # An index of no image must not become an image of another call.
            begin = images * jnp.arange(batch, dtype=jnp.int32)[:, None]
            first = jnp.where(first < 0, -1, first + begin)
        folded.append(first.reshape(-1, *first.shape[2:]))
    results = PRIMITIVES[kernel.name].bind(*folded, request=request, shape=_times(shape, batch, 0))
    return [each.reshape(batch, -1, *each.shape[1:]) for each in results], [0] * len(results)


def _batch(kernel: Kernel, operands: Any, dims: Any, *, request: Request, shape: Any) -> Any:
    (batch,) = {
        value.shape[dim] for value, dim in zip(operands, dims, strict=True) if dim is not None
    }
    shares_boxes = dims[-2] is None and dims[-1] is None
    sums_over_channels = BOXES in kernel.results or kernel.operands[0] == BOXES
    fold = _fold_into_channels if shares_boxes and not sums_over_channels else _fold_into_rows
    return fold(kernel, batch, operands, dims, request, shape)


# ---- Registration

# How a program reaches the kernels, and on which platform: None is any other.
TRANSPORTS: list[tuple[Callable[..., list[Array]], str | None]] = [(_transport.call_host, None)]
if not _transport.WHY_NO_HANDLER:
    TRANSPORTS.append((_transport.call_handler, "cpu"))


def _register(kernel: Kernel) -> Primitive:
    primitive = Primitive(f"roipool_{kernel.name}")
    primitive.multiple_results = True

    def abstract(*operands: Any, request: Request, shape: Any) -> list[Any]:
        shapes = _shapes(kernel, operands, request, shape)
        return [ShapedArray(each.shape, each.dtype) for each in shapes]

    def jvp(primals: Any, tangents: Any, *, request: Request, shape: Any) -> Any:
        results, changes = kernel.jvp(request, shape, primals, tangents)
        single = len(kernel.results) == 1
        return ([results], [changes]) if single else (list(results), list(changes))

    def transpose(cotangents: Any, *operands: Any, request: Request, shape: Any) -> list[Any]:
        (number,) = (n for n, each in enumerate(operands) if ad.is_undefined_primal(each))
        results: list[Any] = [None] * len(operands)
        (cotangent,) = cotangents
        if _is_zero(cotangent):
            results[number] = ad.Zero(operands[number].aval)
            return results
        others = [each for n, each in enumerate(operands) if n != number]
        rule = kernel.transposes[number]
        results[number] = rule(request, operands[number].aval, cotangent, *others)
        return results

    def batch(operands: Any, dims: Any, *, request: Request, shape: Any) -> Any:
        return _batch(kernel, operands, dims, request=request, shape=shape)

    primitive.def_abstract_eval(abstract)
    primitive.def_impl(jax.jit(primitive.bind, static_argnames=("request", "shape")))
    for transport, platform in TRANSPORTS:
        compute = functools.partial(_compute, transport, kernel)
        lowering = mlir.lower_fun(compute, multiple_results=True)
        mlir.register_lowering(primitive, lowering, platform=platform)
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batch
    return primitive


PRIMITIVES = {kernel.name: _register(kernel) for kernel in KERNELS}
