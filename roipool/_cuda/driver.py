"""The CUDA driver's own functions that launch kernels: found in its library at run time."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


# Those that queue a kernel, and zeros.
NAMES = ("cuLaunchKernel", "cuMemsetD8Async")


@cache
def functions() -> tuple[int, int] | None:
    """Return the addresses of the driver's functions of these names, or None without a driver."""
    try:
        library = ctypes.CDLL(LIBRARY)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in NAMES]
    except (OSError, AttributeError):
        return None
    return found[0] or 0, found[1] or 0
