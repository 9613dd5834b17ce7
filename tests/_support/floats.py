"""Changes the floating-point environment of the calling thread, as some libraries do."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

# Offset of the control register in the C library's fenv_t, and its bits that flush subnormals.
_REGISTERS = {"x86_64": (28, 0x8040), "aarch64": (0, 1 << 24)}

needs_flushing = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _REGISTERS,
    reason="no known way here to flush subnormals",
)


@contextmanager
def flushed_subnormals() -> Iterator[None]:
    """Flush subnormal numbers to 0 in this thread, and in threads that it starts."""
    offset, bits = _REGISTERS[platform.machine()]
    library = ctypes.CDLL("libm.so.6")
    before, flushing = (ctypes.create_string_buffer(32) for _ in range(2))
    library.fegetenv(before)
    library.fegetenv(flushing)
    register = ctypes.c_uint32.from_buffer(flushing, offset)
    register.value |= bits
    library.fesetenv(flushing)
    try:
        yield
    finally:
        library.fesetenv(before)


def is_flushing() -> bool:
    """Return whether this thread flushes subnormal numbers to 0."""
    smallest = np.array([np.finfo(np.float32).smallest_subnormal])
    return not (smallest * np.float32(2**20)).any()
