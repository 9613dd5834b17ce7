"""NumPy: arrays on the host. Its functions are those of ``roipool._arrays.Library``."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool import _cpu

Array = NDArray[Any]

empty = _cpu.empty_array
plain = np.asarray
readable = _cpu.contiguous
table = _cpu.contiguous_copy  # so that no other thread can change it during a call
boxes_and_images = _cpu.boxes_and_images
store_rounded = _cpu.store_rounded
may_share_memory = np.may_share_memory
dtype = operator.attrgetter("dtype")
verbs = None
array = "NumPy array"
to_float32 = ".astype(np.float32)"
beside: tuple[type, ...] = ()
checked_values = host_copy = np.asarray  # the array itself: its values are always checked


def xp() -> ModuleType:
    """Return NumPy."""
    return np


def unfilled(shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[Array, bool]:
    """Return a new array of zeros: what is not written is no memory of the system.

    Bytes are cleared in cached memory sooner than the system has given new memory.
    """
    if dtype.itemsize == 1:
        return empty(shape, dtype), False
    return _cpu.zeros_array(shape, dtype), True


engine: Any  # bound by the first call, so that it warns; two threads may both


def __getattr__(attribute: str) -> Any:
    """Bind the CPU engine."""
    if attribute != "engine":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    global engine
    engine = _cpu
    if _cpu.lacks_openmp():
        warnings.warn(
            "roipool uses one thread, because no OpenMP was found when it was built: install your "
            "compiler's OpenMP and build it again, or build it with ROIPOOL_NO_OPENMP=1 to have no "
            "warning",
            RuntimeWarning,
            stacklevel=6,  # of who calls a public function
        )
    return _cpu


def astype(array: Any, dtype: np.dtype[Any]) -> Array:
    """Return an array in a dtype; numbers beyond it become infinite without a warning."""
    if array.dtype.itemsize <= dtype.itemsize:
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def bytes_of(array: Any) -> Array:
    """Return an array of bool as its bytes."""
    return array.view(np.uint8)


def owned(array: Any) -> Any:
    """Return the array."""
    return array


def swapped_pairs(table: Any) -> Any:
    """Return a table with the two columns of each pair exchanged."""
    return table.reshape(len(table), 2, 2)[:, :, ::-1].reshape(len(table), 4)


def device(array: Any) -> AbstractContextManager[Any]:
    """Return a context that changes nothing."""
    return nullcontext()


def check_address(name: str, array: Any) -> None:
    """Do nothing: the engine's copies take any address."""


def device_number(array: Any) -> int:
    """Return 0: there is one host."""
    return 0


def concatenate(parts: Sequence[Any], columns: int, dtype: Any) -> tuple[Array, Array]:
    """Return tables one below the other, and for each row the index of its table."""
    numbers = np.repeat(np.arange(len(parts), dtype=np.int64), [len(part) for part in parts])
    return np.concatenate([np.empty((0, columns), dtype), *parts]), numbers


def can_be_filled(out: Any) -> bool:
    """Return whether engines can write to `out` as it is; read-only memory is a ValueError."""
    flags = out.flags
    if not flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    return bool(flags.c_contiguous and flags.aligned and out.dtype.isnative)
