"""The CUDA driver's own functions, found in its library at run time."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import NamedTuple

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# The functions that launch a kernel, and that set memory to zero.
NAMES = ("cuLaunchKernel", "cuMemsetD8Async")
# The functions that programs of XLA call, in the order of `Driver` in kernels/cpu/xla_cuda.h.
FUNCTIONS = (
    "cuGetErrorString",
    "cuCtxGetCurrent",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuMemsetD8Async",
    "cuLaunchKernel",
)


def library() -> ctypes.CDLL:
    """Load the driver's library; raise an OSError if there is none."""
    return ctypes.CDLL(LIBRARY)


@cache
def functions() -> tuple[int, int] | None:
    """Return the addresses of the driver's functions of these names, or None without a driver."""
    found = addresses(*NAMES)
    return (found[0], found[1]) if found else None


@cache
def addresses(*names: str) -> tuple[int, ...]:
    """Return the addresses of functions, none of them if the driver lacks any."""
    try:
        found = [getattr(library(), name) for name in names]
    except (OSError, AttributeError):
        return ()
    return tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found)


LEAST_CAPABILITY = 70  # compute capability, times ten: kernels need __match_any_sync


class Gpu(NamedTuple):
    """What kernels and their launches depend on."""

    capability: int  # compute capability, times ten
    # Shared memory of a multiprocessor, and the most that a block may have.
    multiprocessor_bytes: int
    block_bytes: int


# CUdevice_attribute: the two numbers of the compute capability, then as in `Gpu`.
ATTRIBUTES = (75, 76, 81, 97)


@cache
def gpu(number: int) -> Gpu:
    """Return the facts of a GPU, by its number; raise a RuntimeError if the driver refuses."""
    device, value = ctypes.c_int(), ctypes.c_int()
    _check(library().cuInit(0))
    _check(library().cuDeviceGet(ctypes.byref(device), number))
    values = []
    for attribute in ATTRIBUTES:
        _check(library().cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
        values.append(value.value)
    major, minor, multiprocessor_bytes, block_bytes = values
    return Gpu(10 * major + minor, multiprocessor_bytes, block_bytes)


def version() -> int:
    """Return the newest CUDA that the driver supports: 12 for CUDA 12.8."""
    number = ctypes.c_int()
    _check(library().cuDriverGetVersion(ctypes.byref(number)))
    return number.value // 1000


def _check(status: int) -> None:
    """Raise a RuntimeError with the driver's text if a function failed."""
    if status:
        text = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"CUDA's driver: {(text.value or b'unknown error').decode()}")
