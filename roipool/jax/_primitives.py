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
maps, else float32, and int32 batch indices; -1 is no image. Of a pyramid, int32 levels, too.
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

from roipool._dtypes import FLOATS, POOLED_DTYPES
from roipool._layout import AXES, Shape4, cells
from roipool._request import pooled_shape
from roipool.jax import _cuda, _transport
from roipool.jax._transport import Request

Array = Any

# Roles of the arrays of a primitive: the axis that a batch can be folded into.
MAPS, POOLED, ARGMAX = "maps", "pooled", "argmax"
BOXES, INDICES, LEVELS = "boxes", "indices", "levels"
OF_BOXES = (BOXES, INDICES, LEVELS)

Shapes = tuple[Shape4, ...]


class Kernel(NamedTuple):
    """A primitive: the roles of its operands and results, and its rules.

    Of a pyramid there are several maps in the place of one, and the levels of the boxes come last.

    `jvp` gets the request, the shapes of the maps that it returns or None, primals and tangents,
    and returns the results and their tangents; `transposes`, by role of what is linear, gets the
    request, what is linear, the cotangents and the other operands.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    jvp: Callable[..., tuple[list[Any], list[Any]]]
    transposes: dict[str, Callable[..., Sequence[Array]]]

    def operand_roles(self, request: Request) -> list[str]:
        """Return the role of each operand."""
        return [*_each_map(self.operands, request), *([LEVELS] if request.pooling.scales else [])]

    def result_roles(self, request: Request) -> list[str]:
        """Return the role of each result."""
        return _each_map(self.results, request)


def _each_map(roles: Sequence[str], request: Request) -> list[str]:
    maps = len(request.pooling.map_scales)
    return [role for each in roles for role in (maps if each == MAPS else 1) * [each]]


# ---- Calling


def bind(
    name: str, request: Request, *operands: Array, shapes: Shapes | None = None
) -> list[Array]:
    """Compute a primitive; `shapes` are those of the maps that it returns, if it does."""
    same = equally_varying(operands)
    results: list[Array] = PRIMITIVES[name].bind(*same, request=request, shapes=shapes)
    return results


# Within `jax.shard_map` an array varies along those axes of the mesh along which devices hold
# different parts of it. Operands of a primitive must vary along the same axes.


def _varying_axes(kind: Any) -> frozenset[Any]:
    """Return the axes along which arrays of a type of JAX's vary."""
    if hasattr(kind, "manual_axis_type"):  # since JAX 0.10
        return frozenset(kind.manual_axis_type.varying)
    return frozenset(kind.vma)


def equally_varying(operands: Sequence[Array]) -> list[Array]:
    """Return operands that all vary along the axes of any of them."""
    own = [_varying_axes(jax.typeof(each)) for each in operands]
    every = frozenset().union(*own)
    return [
        _vary(each, tuple(every - axes)) if every - axes else each
        for each, axes in zip(operands, own, strict=True)
    ]


def _vary(value: Array, axes: tuple[Any, ...]) -> Array:
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, axes, to="varying")
    return jax.lax.pvary(value, axes)


def _shaped(shape: Sequence[int], dtype: Any, operand: Any) -> ShapedArray:
    """Return the type of a result, which varies along the axes of an operand."""
    axes = _varying_axes(operand)
    if not axes:
        return ShapedArray(shape, dtype)
    spec = jax.sharding.PartitionSpec(*(None for _ in shape))
    sharding = jax.sharding.NamedSharding(operand.sharding.mesh, spec)
    if hasattr(operand, "manual_axis_type"):
        kind = type(operand.manual_axis_type)(varying=axes)
        return ShapedArray(shape, dtype, sharding=sharding, manual_axis_type=kind)
    return ShapedArray(shape, dtype, sharding=sharding, vma=axes)


def _shapes(
    kernel: Kernel, operands: Sequence[Any], request: Request, shapes: Shapes | None
) -> list[Any]:
    """Return the shape and dtype of each result."""
    given = dict(zip(kernel.operand_roles(request), operands, strict=True))
    boxes = given[BOXES]
    if MAPS in given:
        pooling = request.pooling
        pooled = pooled_shape(
            given[MAPS].shape,
            boxes.shape[0],
            pooling.output_size,
            pooling.layout,
            pooling.group_size,
        )
    else:
        pooled = given[POOLED].shape
    dtype = given[MAPS if MAPS in given else POOLED].dtype
    dtype = POOLED_DTYPES.get(dtype, dtype)
    of_maps = iter(shapes or ())
    found = []
    for role in kernel.result_roles(request):
        if role == BOXES:
            found.append(jax.ShapeDtypeStruct(boxes.shape, boxes.dtype))
        else:
            found.append(jax.ShapeDtypeStruct(next(of_maps) if role == MAPS else pooled, dtype))
    if kernel.name == "maximum":
        found[1] = jax.ShapeDtypeStruct(pooled, jnp.int32)
    return found


def _values_at(request: Request, maps: Array, argmax: Array, boxes: Array, indices: Array) -> Any:
    """Return the values of maps where an argmax says; 0 where it is -1."""
    pooling = request.pooling
    if not pooling.rules.argmax_is_cell:
        raise request.refusal("second or forward-mode derivatives for mode='max'")
    if 0 in maps.shape:  # no cell that an argmax could name
        return jnp.zeros(argmax.shape, maps.dtype)
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
    transport: Callable[..., list[Array]],
    kernel: Kernel,
    *operands: Array,
    request: Request,
    shapes: Shapes | None,
) -> list[Array]:
    """Compute a primitive within a program that is being compiled."""
    if kernel.name == "values_at":
        return [_values_at(request, *operands)]
    if kernel.name.startswith("box_change"):
        raise request.refusal("derivatives in forward mode with respect to boxes")
    return transport(kernel.name, operands, _shapes(kernel, operands, request, shapes), request)


# ---- Derivatives


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def _zero(like: Array) -> Any:
    is_float = jnp.issubdtype(like.dtype, jnp.floating)
    return ad.Zero(ShapedArray(like.shape, like.dtype if is_float else jax.dtypes.float0))


def _filled(tangents: Sequence[Any], like: Sequence[Any]) -> list[Array]:
    """Return tangents with zeros for those that are symbols of it."""
    both = zip(tangents, like, strict=True)
    return [jnp.zeros(one.shape, one.dtype) if _is_zero(each) else each for each, one in both]


def _totals(like: Sequence[Array], parts: Sequence[Sequence[Array]]) -> list[Any]:
    """Return the sums of the parts of each result."""
    if not parts:
        return [_zero(each) for each in like]
    return [sum(each[1:], each[0]) for each in zip(*parts, strict=True)]


def _split(request: Request, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the maps, and what comes after them."""
    maps = len(request.pooling.map_scales)
    return values[:maps], values[maps:]


def _refuse_moved(request: Request, box_change: Any, what: str) -> None:
    if request.moves_with_boxes and not _is_zero(box_change):
        raise request.refusal(what)


def _average_jvp(request: Request, shapes: Any, primals: Any, tangents: Any) -> Any:
    maps, at = _split(request, primals)
    changes, (box_change, *_) = _split(request, tangents)
    results, parts = bind("average", request, *primals), []
    if not all(map(_is_zero, changes)):
        parts.append(bind("average", request.of_tangent, *_filled(changes, maps), *at))
    if request.moves_with_boxes and not _is_zero(box_change):
        if maps[0].dtype in POOLED_DTYPES:
            raise TypeError(
                f"features must have dtype {', '.join(FLOATS)} for a gradient "
                f"with respect to boxes, got {maps[0].dtype}"
            )
        parts.append(bind("box_change", request.of_tangent, box_change, *primals))
    return results, _totals(results, parts)


def _average_backward_jvp(request: Request, shapes: Any, primals: Any, tangents: Any) -> Any:
    grad, *at = primals
    change, box_change, *_ = tangents
    results, parts = bind("average_backward", request, *primals, shapes=shapes), []
    if not _is_zero(change):
        parts.append(bind("average_backward", request, change, *at, shapes=shapes))
    if request.moves_with_boxes and not _is_zero(box_change):
        parts.append(bind("box_change_backward", request, box_change, grad, *at, shapes=shapes))
    return results, _totals(results, parts)


SECOND = "second derivatives through boxes"


def _box_gradient_jvp(request: Request, shapes: Any, primals: Any, tangents: Any) -> Any:
    grad, *others = primals
    maps, at = _split(request, others)
    grad_change, *changes_and_more = tangents
    changes, (box_change, *_) = _split(request, changes_and_more)
    _refuse_moved(request, box_change, SECOND)
    results, parts = bind("box_gradient", request, *primals), []
    if not _is_zero(grad_change):
        parts.append(bind("box_gradient", request, grad_change, *others))
    if not all(map(_is_zero, changes)):
        parts.append(bind("box_gradient", request, grad, *_filled(changes, maps), *at))
    return results, _totals(results, parts)


def _box_change_jvp(request: Request, *_: Any) -> Any:
    raise request.refusal(SECOND)


OF_MAXIMUM = "gradient of a maximum of samples with respect to boxes"


def _maximum_jvp(request: Request, shapes: Any, primals: Any, tangents: Any) -> Any:
    change, box_change, _ = tangents
    _refuse_moved(request, box_change, OF_MAXIMUM)
    values, argmax = bind("maximum", request, *primals)
    moved = [_zero(values)]
    if not _is_zero(change):
        moved = bind("values_at", request.of_tangent, change, argmax, *primals[1:])
    return [values, argmax], [*moved, _zero(argmax)]


def _linear_once_chosen(name: str) -> Callable[..., Any]:
    """Return the rule of what is linear in its first operand, where an argmax is given."""

    def jvp(request: Request, shapes: Any, primals: Any, tangents: Any) -> Any:
        change, _, box_change, _ = tangents
        _refuse_moved(request, box_change, OF_MAXIMUM)
        results, parts = bind(name, request, *primals, shapes=shapes), []
        if not _is_zero(change):
            parts.append(bind(name, request, change, *primals[1:], shapes=shapes))
        return results, _totals(results, parts)

    return jvp


# Transposes get the request, what is linear, the cotangents of the results, and other operands.


def _shapes_of(maps: Sequence[Any]) -> Shapes:
    return tuple(each.shape for each in maps)


def _refuse_second(request: Request, *_: Any) -> Sequence[Array]:
    raise request.refusal(SECOND)


def _average_transpose(request: Request, maps: Any, cotangents: Any, *at: Any) -> list[Array]:
    return bind("average_backward", request, *cotangents, *at, shapes=_shapes_of(maps))


def _average_backward_transpose(
    request: Request, grad: Any, cotangents: Any, *at: Any
) -> list[Array]:
    return bind("average", request, *cotangents, *at)


def _box_change_transpose(
    request: Request, change: Any, cotangents: Any, *more: Any
) -> list[Array]:
    return bind("box_gradient", request, *cotangents, *more)


def _box_change_backward_transpose(
    request: Request, change: Any, cotangents: Any, grad: Any, *at: Any
) -> list[Array]:
    return bind("box_gradient", request, grad, *cotangents, *at)


def _maximum_backward_transpose(
    request: Request, grad: Any, cotangents: Any, *more: Any
) -> list[Array]:
    return bind("values_at", request, *cotangents, *more)


def _values_at_transpose(request: Request, maps: Any, cotangents: Any, *more: Any) -> list[Array]:
    return bind("maximum_backward", request, *cotangents, *more, shapes=_shapes_of(maps))


# What moves is linear in the first operand, a change of the boxes, which has a role of its own.
CHANGE = "change"

KERNELS = [
    Kernel("average", (MAPS, BOXES, INDICES), (POOLED,), _average_jvp, {MAPS: _average_transpose}),
    Kernel(
        "average_backward",
        (POOLED, BOXES, INDICES),
        (MAPS,),
        _average_backward_jvp,
        {POOLED: _average_backward_transpose},
    ),
    Kernel(
        "box_gradient",
        (POOLED, MAPS, BOXES, INDICES),
        (BOXES,),
        _box_gradient_jvp,
        {POOLED: _refuse_second, MAPS: _refuse_second},
    ),
    Kernel(
        "box_change",
        (CHANGE, MAPS, BOXES, INDICES),
        (POOLED,),
        _box_change_jvp,
        {CHANGE: _box_change_transpose, MAPS: _refuse_second},
    ),
    Kernel(
        "box_change_backward",
        (CHANGE, POOLED, BOXES, INDICES),
        (MAPS,),
        _box_change_jvp,
        {CHANGE: _box_change_backward_transpose, POOLED: _refuse_second},
    ),
    Kernel("maximum", (MAPS, BOXES, INDICES), (POOLED, POOLED), _maximum_jvp, {}),
    Kernel(
        "maximum_backward",
        (POOLED, ARGMAX, BOXES, INDICES),
        (MAPS,),
        _linear_once_chosen("maximum_backward"),
        {POOLED: _maximum_backward_transpose},
    ),
    Kernel(
        "values_at",
        (MAPS, ARGMAX, BOXES, INDICES),
        (POOLED,),
        _linear_once_chosen("values_at"),
        {MAPS: _values_at_transpose},
    ),
]


# ---- Batches: one call, its batch folded into channels, or into boxes and images


def _to_channels(role: str, value: Array, dim: int | None, batch: int, axis: int) -> Array:
    """Return (N, B * C, ...) of maps or pooled values with a batch, (N, H, W, B * C) for NHWC."""
    if role in OF_BOXES:
        return value
    value = _batch_first(value, dim, batch)
    value = jnp.moveaxis(value, 0, axis)
    channels = batch * value.shape[axis + 1]
    return value.reshape(*value.shape[:axis], channels, *value.shape[axis + 2 :])


def _batch_first(value: Array, dim: int | None, batch: int) -> Array:
    if dim is None:
        return jnp.broadcast_to(value, (batch, *value.shape))
    return jnp.moveaxis(value, dim, 0)


def _times(shapes: Shapes | None, batch: int, axis: int) -> Shapes | None:
    """Return shapes with one of their sizes `batch` times as large."""
    if shapes is None:
        return None
    found = []
    for shape in shapes:
        sizes = [size * batch if number == axis else size for number, size in enumerate(shape)]
        found.append((sizes[0], sizes[1], sizes[2], sizes[3]))
    return tuple(found)


def _fold_into_channels(
    kernel: Kernel, batch: int, operands: Any, dims: Any, request: Request, shapes: Any
) -> Any:
    axis = AXES[request.pooling.layout][0]
    folded = [
        _to_channels(role, value, dim, batch, axis)
        for role, value, dim in zip(kernel.operand_roles(request), operands, dims, strict=True)
    ]
    results = bind(kernel.name, request, *folded, shapes=_times(shapes, batch, axis))
    sizes = [each.shape for each in results]
    unfolded = [
        each.reshape(*size[:axis], batch, size[axis] // batch, *size[axis + 1 :])
        for each, size in zip(results, sizes, strict=True)
    ]
    return unfolded, [axis] * len(unfolded)


def _fold_into_rows(
    kernel: Kernel, batch: int, operands: Any, dims: Any, request: Request, shapes: Any
) -> Any:
    roles = kernel.operand_roles(request)
    given = list(zip(roles, operands, dims, strict=True))
    share_maps = all(dim is None for role, _, dim in given if role == MAPS)
    images = 0 if shapes is None else shapes[0][0]
    folded = []
    for role, value, dim in given:
        if role == MAPS and share_maps:
            folded.append(value)  # by all calls
            continue
        first = _batch_first(value, dim, batch)
        if role == MAPS:
            images = first.shape[1]
        elif role == INDICES:
            # An index of no image must not become an image of another call.
            begin = images * jnp.arange(batch, dtype=jnp.int32)[:, None]
            first = jnp.where(first < 0, -1, first + begin)
        folded.append(first.reshape(batch * first.shape[1], *first.shape[2:]))
    results = bind(kernel.name, request, *folded, shapes=_times(shapes, batch, 0))
    unfolded = [each.reshape(batch, each.shape[0] // batch, *each.shape[1:]) for each in results]
    return unfolded, [0] * len(results)


def _batch(kernel: Kernel, operands: Any, dims: Any, *, request: Request, shapes: Any) -> Any:
    (batch,) = {
        value.shape[dim] for value, dim in zip(operands, dims, strict=True) if dim is not None
    }
    if batch == 0:
        return _batch_of_none(kernel, operands, dims, request, shapes)
    roles = kernel.operand_roles(request)
    shares_boxes = all(
        dim is None for role, dim in zip(roles, dims, strict=True) if role in OF_BOXES
    )
    sums_over_channels = BOXES in kernel.results or CHANGE in kernel.operands
    fold = _fold_into_channels if shares_boxes and not sums_over_channels else _fold_into_rows
    return fold(kernel, batch, operands, dims, request, shapes)


def _batch_of_none(kernel: Kernel, operands: Any, dims: Any, request: Request, shapes: Any) -> Any:
    """Return results without calls, in the shapes that those of one call have."""
    one = [
        value if dim is None else value.sum(dim, dtype=value.dtype, keepdims=True)
        for value, dim in zip(operands, dims, strict=True)
    ]
    results, places = _batch(kernel, one, dims, request=request, shapes=shapes)
    both = zip(results, places, strict=True)
    return [jax.lax.slice_in_dim(each, 0, 0, axis=place) for each, place in both], places


# ---- Registration

# How a program reaches the kernels, and on which platform: None is any other.
TRANSPORTS: list[tuple[Callable[..., list[Array]], str | None]] = [
    (_transport.call_host_from_device, None),
    (_transport.call_cpu, "cpu"),
    (_cuda.call_cuda, "cuda"),
]


def _register(kernel: Kernel) -> Primitive:
    primitive = Primitive(f"roipool_{kernel.name}")
    primitive.multiple_results = True

    def abstract(*operands: Any, request: Request, shapes: Any) -> list[Any]:
        found = _shapes(kernel, operands, request, shapes)
        return [_shaped(each.shape, each.dtype, operands[0]) for each in found]

    def jvp(primals: Any, tangents: Any, *, request: Request, shapes: Any) -> Any:
        return kernel.jvp(request, shapes, primals, tangents)

    def transpose(cotangents: Any, *operands: Any, request: Request, shapes: Any) -> list[Any]:
        return _transposed(kernel, cotangents, operands, request, shapes)

    def batch(operands: Any, dims: Any, *, request: Request, shapes: Any) -> Any:
        return _batch(kernel, operands, dims, request=request, shapes=shapes)

    primitive.def_abstract_eval(abstract)
    compiled = jax.jit(primitive.bind, static_argnames=("request", "shapes"))

    def compute(*operands: Any, request: Request, shapes: Any) -> list[Any]:
        with jax.disable_jit(False):  # not even then is there another way to the kernels
            results: list[Any] = compiled(*operands, request=request, shapes=shapes)
            return results

    primitive.def_impl(compute)
    for transport, platform in TRANSPORTS:
        lowered = functools.partial(_compute, transport, kernel)
        lowering = mlir.lower_fun(lowered, multiple_results=True)
        mlir.register_lowering(primitive, lowering, platform=platform)
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batch
    return primitive


def _transposed(
    kernel: Kernel, cotangents: Any, operands: Any, request: Request, shapes: Any
) -> list[Any]:
    """Return the cotangents of what a primitive is linear in: operands of one role."""
    roles = kernel.operand_roles(request)
    unknown = [ad.is_undefined_primal(each) for each in operands]
    linear = roles[unknown.index(True)]
    # Others of that role are zeros, and so is what they add.
    group = [
        each.aval if is_unknown else each
        for each, is_unknown, role in zip(operands, unknown, roles, strict=True)
        if role == linear
    ]
    if all(map(_is_zero, cotangents)):
        found: list[Any] = [_zero(each) for each in group]
    else:
        likes = [each.aval if _is_zero(each) else each for each in cotangents]
        others = [each for each, role in zip(operands, roles, strict=True) if role != linear]
        rule = kernel.transposes[linear]
        found = [*rule(request, group, _filled(cotangents, likes), *others)]
    results = iter(found)
    by_role = [next(results) if role == linear else None for role in roles]
    return [each if known else None for each, known in zip(by_role, unknown, strict=True)]


PRIMITIVES = {kernel.name: _register(kernel) for kernel in KERNELS}
