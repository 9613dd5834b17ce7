"""JAX arrays as a library of ``roipool._arrays``, whose functions are those of its `Library`.

Calls on traced arrays are checked as those on NumPy's arrays are, and computed by the primitives,
which JAX differentiates, batches and compiles. Arrays beside them may be NumPy's: those whose
values are known. Functions here take both.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from roipool import _arguments as check
from roipool import _cpu
from roipool._arrays import NUMPY
from roipool._boxes import Regions
from roipool._dtypes import INTEGERS, dtype_name, real_dtype
from roipool._layout import Shape4, cells
from roipool._levels import levels_by_area
from roipool._masks.request import Pasting
from roipool._request import Pooling
from roipool.jax import _namespace
from roipool.jax._primitives import bind, equally_varying
from roipool.jax._transport import Request, on_host

Array = Any

# The public function that is being traced.
OPERATION: ContextVar[str] = ContextVar("operation")

engine = None
array = "JAX array"
to_float32 = ".astype(np.float32)"
beside = (np.ndarray, np.generic, list, tuple, float, int)  # whose values are known


def xp() -> ModuleType:
    """Return the namespace whose functions are named as NumPy's."""
    return _namespace


def dtype(array: Array) -> np.dtype[Any]:
    """Return the dtype of an array as NumPy's."""
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        return np.dtype(object)
    return np.dtype(array.dtype)


def astype(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in a dtype: the same one if it has it already."""
    if isinstance(array, np.ndarray):
        return NUMPY.astype(array, dtype)
    return array if array.dtype == dtype else array.astype(dtype)


def bytes_of(array: Array) -> Array:
    """Return an array of bool as bytes."""
    return array.astype(np.uint8)


def device(array: Array) -> AbstractContextManager[Any] | None:
    """Return None: new arrays lie where those lie that they are computed from."""
    return None


def device_number(array: Array) -> int:
    """Return 0: JAX finds arrays on different devices by itself."""
    return 0


def check_address(name: str, array: Array) -> None:
    """Do nothing: JAX decides where arrays lie."""


def plain(array: Array) -> Array:
    """Return the array."""
    return array


def readable(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in a dtype; whole numbers beyond it become its largest."""
    if array.dtype.kind == "u" and dtype.kind == "i":
        largest = min(np.iinfo(array.dtype).max, np.iinfo(dtype).max)
        array = array.clip(0, largest)
    return astype(array, dtype)


table = readable


owned = plain  # known regions stay NumPy's until a primitive gets them


def swapped_pairs(table: Array) -> Array:
    """Return a table with the two columns of each pair exchanged."""
    return table.reshape(table.shape[0], 2, 2)[:, :, ::-1].reshape(table.shape[0], 4)


def boxes_and_images(rows: Array, images: int) -> tuple[Array, Array, int]:
    """Return the boxes and the batch indices of a table, and the first wrong row, or -1."""
    values = checked_values(rows)
    wrong = -1 if values is None else _cpu.boxes_and_images(values, images)[2]
    return rows[:, 1:], rows[:, 0], wrong


def checked_values(array: Array) -> np.ndarray[Any, Any] | None:
    """Return an array's values where they are known, and on the host; else None."""
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, jax.core.Tracer):
        return None
    if any(device.platform != "cpu" for device in array.devices()):
        return None
    return np.asarray(array)


def host_copy(array: Array) -> np.ndarray[Any, Any]:
    """Return an array's values on the host."""
    return np.asarray(array)


def concatenate(parts: Sequence[Array], columns: int, dtype: Any) -> tuple[Array, Array]:
    """Return tables one below the other, and for each row the index of its table."""
    numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [part.shape[0] for part in parts])
    return jnp.concatenate([jnp.empty((0, columns), dtype), *parts]), numbers


# ---- What primitives compute


class _VerbsOfJax:
    """The functions of ``roipool._engines.Verbs``, by the primitives of any request."""

    def average(self, features: Sequence[Array], regions: Regions, pooling: Pooling) -> Array:
        """Return pooled values: weighted averages, from the map of each box's level."""
        at = _operands(regions, features[0].shape[0])
        return bind("average", _request(pooling), *map(jnp.asarray, features), *at)[0]

    def average_backward(
        self, grad_output: Array, regions: Regions, pooling: Pooling, shapes: Sequence[Shape4]
    ) -> list[Array]:
        """Return the gradient of an average with respect to each of the maps of such shapes."""
        sizes = tuple(map(_plain_shape, shapes))
        at = _operands(regions, sizes[0][0])
        gradient = jnp.asarray(grad_output)
        return bind("average_backward", _request(pooling), gradient, *at, shapes=sizes)

    def average_backward_boxes(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Array:
        """Return the gradient of an average with respect to each number of each box."""
        maps, at = (
            map(jnp.asarray, (grad_output, *features)),
            _operands(regions, features[0].shape[0]),
        )
        return bind("box_gradient", _request(pooling), *maps, *at)[0]

    def maximum(self, features: Array, regions: Regions, pooling: Pooling) -> tuple[Array, Array]:
        """Return maxima and their argmax."""
        at = _operands(regions, features.shape[0])
        pooled, argmax = bind("maximum", _request(pooling), jnp.asarray(features), *at)
        return pooled, argmax

    def maximum_backward(
        self, grad_output: Array, argmax: Array, regions: Regions, pooling: Pooling, shape: Shape4
    ) -> Array:
        """Return the gradient of a maximum with respect to the features."""
        limit = cells(shape, pooling.layout) if pooling.rules.argmax_is_cell else None
        given = jnp.asarray(grad_output), _chosen(jnp.asarray(argmax), limit)
        sizes = (_plain_shape(shape),)
        at = _operands(regions, shape[0])
        return bind("maximum_backward", _request(pooling), *given, *at, shapes=sizes)[0]

    def argmax_positions(
        self, argmax: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> tuple[Array, Array]:
        """Return the positions y and x, in map cells, of samples given by index; NCHW."""

        def compute(*arrays: Any) -> Any:
            chosen, at = _host_regions(arrays, input_shape[0])
            return _cpu.argmax_positions(chosen[0], at, pooling, input_shape)

        kind = jax.ShapeDtypeStruct(argmax.shape, regions.boxes.dtype)
        at = regions.boxes, regions.batch_indices
        y, x = on_host(compute, [kind, kind], argmax, *at, method="sequential")
        return y, x

    def argmax_at(
        self, y: Array, x: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Array:
        """Return the indices of the samples at positions, -1 where there is none; NCHW."""

        def compute(*arrays: Any) -> Any:
            places, at = _host_regions(arrays, input_shape[0])
            with np.errstate(over="ignore"):  # beyond the type: infinite, and at no sample
                y, x = (np.ascontiguousarray(each, at.boxes.dtype) for each in places)
            return [_cpu.argmax_at(y, x, at, pooling, input_shape)]

        kind = jax.ShapeDtypeStruct(y.shape, np.dtype(np.int64))
        at = regions.boxes, regions.batch_indices
        return on_host(compute, [kind], y, x, *at, method="sequential")[0]

    def assign_levels(self, boxes: Array, areas: Sequence[float]) -> Array:
        """Return the level of each box, (K,) int64, from its corners."""
        none = jnp.zeros(boxes.shape[0], np.int64)
        found: Array = levels_by_area(boxes.astype(check.FLOAT64), none, areas)
        return found

    def filled(
        self,
        function: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        arrays: Sequence[Array],
        request: Pasting,
    ) -> Array:
        """Return an array that a function of an engine fills, a row for each row of `arrays`."""

        def compute(*values: Any) -> Any:
            out = _cpu.zeros_array(shape, dtype)
            held = [np.ascontiguousarray(each) for each in values]
            getattr(_cpu, function)(*held, request._replace(on_zeros=True), out)
            return [out]

        kind = jax.ShapeDtypeStruct(shape, dtype)
        constant = _without_derivative(OPERATION.get())
        given = [constant(jnp.asarray(each)) for each in arrays]
        (found,) = on_host(compute, [kind], *given, method="sequential")
        return equally_varying([found, *given])[0]

    def rounded(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """Return pooled values in another dtype, as ``Library.store_rounded`` does."""
        if dtype_name(dtype) in INTEGERS:
            limits = jnp.iinfo(dtype)
            values = jnp.rint(jnp.clip(jnp.nan_to_num(values), limits.min, limits.max))
        return values.astype(dtype)


@functools.cache
def _without_derivative(operation: str) -> Any:
    """Return an identity whose derivative is an error: a callback's would silently be 0."""

    @jax.custom_jvp  # type: ignore[untyped-decorator]  # no types where no JAX is
    def same(array: Array) -> Array:
        return array

    def rule(primals: Any, tangents: Any) -> Any:
        if not isinstance(tangents[0], SymbolicZero):
            raise NotImplementedError(f"{operation}: pasted masks have no second derivative")
        return primals[0], tangents[0]

    same.defjvp(rule, symbolic_zeros=True)
    return same


def _request(pooling: Pooling) -> Request:
    return Request(OPERATION.get(), pooling)


def _plain_shape(shape: Shape4) -> Shape4:
    """Return a shape as a plain tuple, which compiled calls can be found by."""
    first, second, third, fourth = shape
    return first, second, third, fourth


def _operands(regions: Regions, images: int) -> list[Array]:
    """Return regions as primitives take them: no derivative is one by an index or a level."""
    boxes, indices, levels = regions
    found = [boxes, _image_numbers(_constant(indices), images)]
    if levels is not None:  # those beyond 32 bits stay beyond all maps
        found.append(levels.clip(-1, check.MAX_AXIS).astype(np.int32))
    return [*map(jnp.asarray, found)]


def _constant(array: Array) -> Array:
    return array if isinstance(array, np.ndarray) else jax.lax.stop_gradient(array)


def _image_numbers(numbers: Array, images: int) -> Array:
    """Return batch indices as int32, -1 where they name no image."""
    functions = np if isinstance(numbers, np.ndarray) else jnp
    is_image = (numbers >= 0) & (numbers < images)
    if numbers.dtype.kind == "f":
        is_image &= numbers == functions.floor(numbers)
    named = functions.where(is_image, numbers, 0).astype(np.int32)
    return named - (~is_image).astype(np.int32)


def _chosen(argmax: Array, limit: int | None) -> Array:
    """Return an argmax as primitives take it; `limit` is how many cells it may name.

    Below -1 and beyond the map nothing may be written; kernels check numbers of samples themselves.
    """
    # A number beyond 32 bits must not wrap to another index.
    held = jnp.iinfo(argmax.dtype)
    chosen = jnp.clip(argmax, max(held.min, -2), min(held.max, check.MAX_AXIS)).astype(jnp.int32)
    beyond = chosen < -1 if limit is None else (chosen < 0) | (chosen >= limit)
    return jnp.where(beyond, -1, chosen)


def _host_regions(arrays: Sequence[Any], images: int) -> tuple[list[Any], Regions]:
    """Return arrays of a call on the host, and the last two as its regions."""
    *others, boxes, numbers = (np.ascontiguousarray(each) for each in arrays)
    known = (numbers >= 0) & (numbers < images)
    indices = np.where(known, numbers, -1).astype(np.int64)
    return others, Regions(boxes.astype(real_dtype(boxes.dtype)), indices)


verbs = _VerbsOfJax()
