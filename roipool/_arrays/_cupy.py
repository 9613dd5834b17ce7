"""CuPy: arrays on a GPU. Its functions are those of ``roipool._arrays.Library``.

An array of CuPy exists only where the caller has imported it. Nothing waits for a GPU except
:func:`host_copy`, and :func:`checked_values` while debugging.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from roipool import _cpu
from roipool._settings import debugging


def xp() -> ModuleType:
    """Return CuPy."""
    return sys.modules["cupy"]


engine: Any  # bound by the first call


def __getattr__(attribute: str) -> Any:
    """Import the CUDA engine, and bind it."""
    if attribute != "engine":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    global engine
    engine = importlib.import_module("roipool._cuda.engine")
    return engine


def device(array: Any) -> AbstractContextManager[Any]:
    """Work on the device of `array`; what a graph is captured with stays allocated."""
    on_device: AbstractContextManager[Any] = array.device
    stream = sys.modules["cupy"].cuda.get_current_stream(array.data.device_id)
    return _capturing(on_device) if stream.is_capturing() else on_device


@contextmanager
def _capturing(on_device: AbstractContextManager[Any]) -> Iterator[None]:
    cuda = xp().cuda
    with on_device, cuda.using_allocator(never_freeing(cuda.get_allocator())):
        yield


# Memory that captured graphs read and write: a graph knows its address alone, and nobody knows how
# long it lives. Without this, another array would get it from the pool.
_captured_memory: list[Any] = []


def never_freeing(allocator: Callable[[int], Any]) -> Callable[[int], Any]:
    """Return an allocator of memory that is never freed."""

    def allocate(size: int) -> Any:
        memory = allocator(size)
        _captured_memory.append(memory)
        return memory

    return allocate


dtype = operator.attrgetter("dtype")
verbs = None
array = "CuPy array"
to_float32 = ".astype(np.float32)"
beside: tuple[type, ...] = ()


def bytes_of(array: Any) -> Any:
    """Return an array of bool as its bytes."""
    return array.view(np.uint8)


def owned(array: Any) -> Any:
    """Return the array."""
    return array


def swapped_pairs(table: Any) -> Any:
    """Return a table with the two columns of each pair exchanged."""
    return table.reshape(len(table), 2, 2)[:, :, ::-1].reshape(len(table), 4)


def astype(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array in a dtype: the same one if it has it already."""
    return array.astype(dtype, copy=False)


device_number = operator.attrgetter("data.device_id")  # `device` is a new object each time


def check_address(name: str, array: Any) -> None:
    """Raise ValueError if numbers lie at addresses that are no multiples of their size.

    A kernel that reads one, and CuPy's own do, fails, and with it whatever the process does on this
    GPU afterwards.
    """
    size, address, strides = array.dtype.itemsize, array.data.ptr, array.strides
    if address % size or any(stride % size for stride in strides):
        raise ValueError(
            f"{name} must have its {array.dtype} numbers at multiples of {size} bytes, as a GPU "
            f"reads them, got strides {strides} from address {address:#x} on"
        )


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Return a new, uninitialised array."""
    return sys.modules["cupy"].empty(shape, dtype)


def unfilled(shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[Any, bool]:
    """Return a new array, which kernels write whole."""
    return empty(shape, dtype), False


def plain(array: Any) -> Any:
    """Return the array: nothing on the host reads its memory."""
    return array


def readable(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array of any strides: the same one where its dtype is right already."""
    return array if array.dtype == dtype else array.astype(dtype)


def table(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return rows of numbers; kernels read any strides without a copy."""
    return array if array.dtype == dtype else array.astype(dtype)


def boxes_and_images(rows: Any, images: int) -> tuple[Any, Any, int]:
    """Return columns of a table, the batch index of each box as the number that it is."""
    wrong = -1
    if debugging():
        _, _, wrong = _cpu.boxes_and_images(host_copy(rows), images)
    rows = table(rows, rows.dtype)
    return rows[:, 1:], rows[:, 0], wrong


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


def store_rounded(values: Any, out: Any) -> None:
    """Write float32 values to an array of another type."""
    if out.dtype.kind in "iu":
        limits, cupy = np.iinfo(out.dtype), xp()
        whole = cupy.clip(cupy.rint(values), float(limits.min), float(limits.max))
        values = cupy.where(whole == whole, whole, 0.0)
    out[...] = values.astype(out.dtype)


def can_be_filled(out: Any) -> bool:
    """Return whether engines can write to `out` as it is."""
    check_address("out", out)
    return bool(out.flags.c_contiguous)
