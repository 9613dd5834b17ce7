"""The CUDA driver's own function that launches kernels: found in its library at run time."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


@cache
def launcher() -> int | None:
    """Return the address of cuLaunchKernel, or None without a driver."""
    try:
        function = ctypes.CDLL(LIBRARY).cuLaunchKernel
    except (OSError, AttributeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
