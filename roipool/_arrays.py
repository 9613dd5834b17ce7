"""What differs between NumPy and CuPy arrays: making, converting, looking at values.

CuPy is never imported here: an array of it exists only where the caller has imported it. Nothing
waits for a GPU except :func:`host_copy`, and :func:`values_of` while debugging.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, cast

import numpy as np

from roipool._debug import debugging


def is_cupy(value: Any) -> bool:
    """Return whether a value is a CuPy array."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def array_module(array: Any) -> ModuleType:
    """Return the library of an array: NumPy, or CuPy, whose functions have the same names."""
    return sys.modules["cupy"] if is_cupy(array) else np


def device_of(*values: Any) -> AbstractContextManager[Any]:
    """Return a context in which CuPy computes on the device of the arrays among `values`."""
    for value in values:
        if is_cupy(value):
            return cast(AbstractContextManager[Any], value.device)
    return nullcontext()


def is_array(value: Any) -> bool:
    """Return whether a value is an array of either library."""
    return isinstance(value, np.ndarray) or is_cupy(value)


def as_array(values: Any) -> Any:
    """Return an array as it is, and anything else as a NumPy array."""
    return values if is_cupy(values) else np.asarray(values)


def contiguous(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array in C order at an aligned address: the same one where it is so already."""
    if isinstance(array, np.ndarray):
        result = np.ascontiguousarray(array, dtype)
        return result if result.flags.aligned else result.copy()
    if array.dtype == dtype and array.flags.c_contiguous:
        return array
    with array.device:
        return sys.modules["cupy"].ascontiguousarray(array, dtype)


def converted(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array of `dtype`: contiguous on the host; on a GPU any strides will do."""
    if isinstance(array, np.ndarray):
        return contiguous(array, dtype)
    with array.device:
        return array.astype(dtype, copy=False)


def assign(target: Any, source: Any) -> None:
    """Copy an array's values into another of the same library."""
    if isinstance(target, np.ndarray):
        target[...] = source
        return
    with target.device:
        target[...] = source


def reversed_pairs(boxes: Any) -> Any:
    """Return (K, 4) boxes with the two coordinates of each corner exchanged."""
    pairs = boxes.reshape(len(boxes), 2, 2)[:, :, ::-1]
    if isinstance(boxes, np.ndarray):
        return pairs.reshape(len(boxes), 4)
    with boxes.device:
        return pairs.reshape(len(boxes), 4)


def values_of(array: Any) -> np.ndarray[Any, Any] | None:
    """Return an array's values if they may be looked at, else None."""
    return host_copy(array) if isinstance(array, np.ndarray) or debugging() else None


def host_copy(array: Any) -> np.ndarray[Any, Any]:
    """Return an array's values on the host, which waits for the GPU if they are on one."""
    return array if isinstance(array, np.ndarray) else array.get()


def joined(parts: Sequence[Any], columns: int, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return arrays of rows one after the other, and for each row the number of its array.

    A row has so many `columns`.
    """
    lengths = [len(part) for part in parts]
    if not any(is_cupy(part) for part in parts):
        numbers = np.repeat(np.arange(len(parts), dtype=np.int64), lengths)
        return np.concatenate(parts) if parts else np.empty((0, columns), dtype), numbers
    cupy = sys.modules["cupy"]
    with parts[0].device:
        # Not concatenate: of more than 8 arrays it copies the addresses to the GPU, from memory
        # that is gone when a graph replays it.
        rows = cupy.empty((sum(lengths), columns), dtype)
        on_device = cupy.empty(sum(lengths), np.int64)
        end = 0
        for number, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            rows[end : end + length] = part
            on_device[end : end + length].fill(number)
            end += length
        return rows, on_device


def may_share_memory(first: Any, second: Any) -> bool:
    """Return whether two values are arrays of one library that may overlap."""
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and np.may_share_memory(first, second)
    return is_cupy(second) and bool(sys.modules["cupy"].may_share_memory(first, second))
