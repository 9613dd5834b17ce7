"""CuPy: arrays on a GPU. Its functions are those of ``roipool._arrays.Library``.

An array of CuPy exists only where the caller has imported it. Nothing waits for a GPU except
:func:`host_copy`, and :func:`checked_values` while debugging.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from roipool._settings import debugging

name = "CuPy"


def xp() -> ModuleType:
    """Return CuPy."""
    return sys.modules["cupy"]


engine: Any


def __getattr__(attribute: str) -> Any:
    """Return the CUDA engine, which is imported by the first call."""
    if attribute != "engine":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    name = "roipool._cuda.engine"
    return sys.modules.get(name) or importlib.import_module(name)


@contextmanager
def device(array: Any) -> Iterator[None]:
    """Work on the device of `array`; what a graph is captured with stays allocated."""
    cuda = xp().cuda
    with array.device:
        if not cuda.get_current_stream().is_capturing():
            yield
            return
        with cuda.using_allocator(keeping(cuda.get_allocator())):
            yield


# Memory that captured graphs read and write: a graph knows its address alone, and nobody knows how
# long it lives. Without this, another array would get it from the pool.
_kept: list[Any] = []


def keeping(allocator: Callable[[int], Any]) -> Callable[[int], Any]:
    """Return an allocator of memory that is never freed."""

    def allocate(size: int) -> Any:
        memory = allocator(size)
        _kept.append(memory)
        return memory

    return allocate


def device_number(array: Any) -> int:
    """Return which GPU holds `array`."""
    return int(array.device.id)


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Return a new, uninitialised array."""
    return xp().empty(shape, dtype)


def plain(array: Any) -> Any:
    """Return the array: nothing on the host reads its memory."""
    return array


def contiguous(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array in C order: the same one where it is so already."""
    if array.dtype == dtype and array.flags.c_contiguous:
        return array
    return xp().ascontiguousarray(array, dtype)


def table(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return rows of numbers; kernels read any strides of whole numbers without a copy."""
    numbers = array.astype(dtype, copy=False)
    if any(stride % dtype.itemsize for stride in numbers.strides):
        return xp().ascontiguousarray(numbers)
    return numbers


def checked_values(array: Any) -> np.ndarray[Any, Any] | None:
    """Return an array's values while debugging, else None."""
    return host_copy(array) if debugging() else None


def host_copy(array: Any) -> np.ndarray[Any, Any]:
    """Return an array's values, which waits for the GPU."""
    values: np.ndarray[Any, Any] = array.get()
    return values


def concatenate(parts: Sequence[Any], columns: int, dtype: Any) -> tuple[Any, Any]:
    """Return tables one below the other, and for each row the index of its table."""
    # Not CuPy's concatenate: of more than 8 arrays it copies the addresses to the GPU, from memory
    # that is gone when a graph replays it.
    rows = sum(len(part) for part in parts)
    table, numbers = xp().empty((rows, columns), dtype), xp().empty(rows, np.int64)
    end = 0
    for number, part in enumerate(parts):
        begin, end = end, end + len(part)
        table[begin:end] = part
        numbers[begin:end].fill(number)
    return table, numbers


def may_share_memory(first: Any, second: Any) -> bool:
    """Return whether two arrays may overlap."""
    return bool(xp().may_share_memory(first, second))


def can_be_filled(out: Any) -> bool:
    """Return whether engines can write to `out` as it is."""
    return bool(out.flags.c_contiguous)
