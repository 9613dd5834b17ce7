"""The driver's functions on the emulator: run kernels on the arguments at given addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

# Kernels by the address that stands for the driver's object; launched with a grid, a block, bytes
# of shared memory and arguments; what fails is kept, as ctypes cannot raise it.
functions: dict[int, Callable[..., None]] = {}
errors: list[Exception] = []
# What each launch was given: the stream, and the name of the kernel.
launched: list[tuple[int, str]] = []
cleared: list[tuple[int, int]] = []  # the stream, and bytes

UNSIGNED, POINTER = ctypes.c_uint, ctypes.c_void_p
LAUNCHER = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, *[UNSIGNED] * 7, POINTER, ctypes.POINTER(POINTER), POINTER
)
status = 0  # what the next launches return; if it is not 0, they do nothing


@LAUNCHER
def launch(function: int, *given: Any) -> int:
    """Launch a kernel; return 0, or the status to return."""
    *grid_and_block, shared, stream, arguments, extra = given
    if status or extra:
        return status or 1
    try:
        kernel = functions[function]
        launched.append((stream or 0, kernel.name))  # type: ignore[attr-defined]
        values = [
            np.frombuffer(ctypes.string_at(address, size), np.uint8)
            for address, size in zip(arguments, kernel.sizes, strict=False)  # type: ignore[attr-defined]
        ]
        kernel(tuple(grid_and_block[:3]), tuple(grid_and_block[3:]), shared, values)
    except Exception as error:  # noqa: BLE001 - a test reads it
        errors.append(error)
        return 1
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_ubyte, ctypes.c_size_t, POINTER)
def clear(address: int, value: int, size: int, stream: int) -> int:
    """Fill memory, which must be an array's own; return 0, or the status to return."""
    if not status:
        cleared.append((stream or 0, size))
        ctypes.memset(address, value, size)
    return status


def addresses() -> tuple[int, int]:
    """Return the addresses of `launch` and `clear`."""
    found = [ctypes.cast(each, POINTER).value for each in (launch, clear)]
    return found[0] or 0, found[1] or 0
