"""JAX arrays as a library of ``roipool._arrays``, whose functions are those of its `Library`.

Calls on traced arrays are checked as those on NumPy's arrays are, and computed by the primitives,
which JAX differentiates, batches and compiles. Arrays beside them may be NumPy's: those whose
values are known. Functions here take both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roipool import _cpu
from roipool._arguments import Regions
from roipool._arrays import NUMPY
from roipool._definitions import MOVES_WITH_BOXES
from roipool._dtypes import dtype_name, real_dtype
from roipool._layout import Shape4, cells
from roipool._masks.request import Pasting
from roipool._pooling import Pooling
from roipool._requests import Request
from roipool.jax import _namespace, _operations
from roipool.jax._transport import on_host

Array = Any

engine = None
array = "JAX array"
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


readable = table = astype
owned = plain


def swapped_pairs(table: Array) -> Array:
    """Return a table with the two columns of each pair exchanged."""
    return table.reshape(table.shape[0], 2, 2)[:, :, ::-1].reshape(table.shape[0], 4)


def boxes_and_images(rows: Array, images: int) -> tuple[Array, Array, int]:
    """Return the boxes and the batch indices of a table, and the first wrong row, or -1."""
    values = checked_values(rows)
    wrong = -1 if values is None else _cpu.boxes_and_images(values, images)[2]
    return rows[:, 1:], rows[:, 0], wrong


checked_values = _operations.host_values


def host_copy(array: Array) -> np.ndarray[Any, Any]:
    """Return an array's values on the host."""
    return np.asarray(array)


def concatenate(parts: Sequence[Array], columns: int, dtype: Any) -> tuple[Array, Array]:
    """Return tables one below the other, and for each row the index of its table."""
    numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [part.shape[0] for part in parts])
    return jnp.concatenate([jnp.empty((0, columns), dtype), *parts]), numbers


# ---- What primitives compute


class _Verbs:
    """The functions of ``roipool._pooling.Verbs``, by the primitives of any request."""

    def average(self, features: Sequence[Array], regions: Regions, pooling: Pooling) -> Array:
        """Return pooled values: weighted averages, from the map of each box's level."""
        boxes, indices, levels = regions
        request = _request(regions, pooling)
        if levels is None:
            return _operations.average(features[0], boxes, indices, request=request)
        return _operations.average_levels([*features], boxes, indices, levels, request=request)

    def average_backward(
        self, grad_output: Array, regions: Regions, pooling: Pooling, shapes: Sequence[Shape4]
    ) -> list[Array]:
        """Return the gradient of an average with respect to each of the maps of such shapes."""
        boxes, indices, levels = regions
        request, sizes = _request(regions, pooling), tuple(map(tuple, shapes))
        if levels is None:
            found = _operations.average_backward(
                grad_output, boxes, indices, request=request, shape=sizes[0]
            )
            return [found]
        return _operations.average_levels_backward(
            grad_output, boxes, indices, levels, request=request, shapes=sizes
        )

    def average_backward_boxes(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Array:
        """Return the gradient of an average with respect to each number of each box."""
        boxes, indices, levels = regions
        request = _request(regions, pooling)
        if levels is None:
            return _operations.box_gradient(
                grad_output, features[0], boxes, indices, request=request
            )
        return _operations.levels_box_gradient(
            grad_output, [*features], boxes, indices, levels, request=request
        )

    def maximum(self, features: Array, regions: Regions, pooling: Pooling) -> tuple[Array, Array]:
        """Return maxima and their argmax."""
        boxes, indices, _ = regions
        pooled, argmax = _operations.maximum(
            features, boxes, indices, request=_request(regions, pooling)
        )
        return pooled, argmax

    def maximum_backward(
        self, grad_output: Array, argmax: Array, regions: Regions, pooling: Pooling, shape: Shape4
    ) -> Array:
        """Return the gradient of a maximum with respect to the features."""
        boxes, indices, _ = regions
        limit = cells(shape, pooling.layout) if pooling.rules.argmax_is_cell else None
        return _operations.maximum_backward(
            grad_output,
            argmax,
            boxes,
            indices,
            request=_request(regions, pooling),
            shape=tuple(shape),
            limit=limit,
        )

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
            out = _cpu.empty_array(shape, dtype)
            held = [np.ascontiguousarray(each) for each in values]
            getattr(_cpu, function)(*held, request, out)
            return [out]

        kind = jax.ShapeDtypeStruct(shape, dtype)
        return on_host(compute, [kind], *arrays, method="sequential")[0]

    def rounded(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """Return pooled values in another dtype, as ``Library.store_rounded`` does."""
        return _operations.rounded(values, dtype_name(dtype))


def _request(regions: Regions, pooling: Pooling) -> Request:
    name = pooling.definition.name
    return Request(name, regions.boxes.shape[1], name in MOVES_WITH_BOXES, pooling)


def _host_regions(arrays: Sequence[Any], images: int) -> tuple[list[Any], Regions]:
    """Return arrays of a call on the host, and the last two as its regions."""
    *others, boxes, numbers = (np.ascontiguousarray(each) for each in arrays)
    known = (numbers >= 0) & (numbers < images)
    indices = np.where(known, numbers, -1).astype(np.int64)
    return others, Regions(boxes.astype(real_dtype(boxes.dtype)), indices)


verbs = _Verbs()
