"""What the programs of scripts/gpu.sh use of CuPy besides roipool: added to the emulator.

Only for a rehearsal, in processes of its own (tests/emulator/rehearse.sh): clocks are the host's.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import cupy_module, memory
from .cupy_module import RawKernel, ndarray


class Event:
    """An event, which takes place when it is recorded."""

    def __init__(self) -> None:
        self.milliseconds = 0.0

    def record(self) -> None:
        """Take the time."""
        self.milliseconds = time.perf_counter() * 1e3

    def synchronize(self) -> None:
        """Return at once: nothing is pending."""


def set_allocator(allocator: Any) -> None:
    """Accept no pool, which the emulator has none of."""
    assert allocator is None
    assert memory.get_allocator() is memory.fresh


def kernel(code: str, name: str, options: tuple[str, ...] = ()) -> Any:
    """Return a kernel; that of the benchmarks' clock, which only spins, does nothing."""
    return (lambda *_, **__: None) if name == "hold" else RawKernel(code, name, options)


def install() -> Any:
    """Complete the emulator, and return it."""
    cupy, cuda = cupy_module, cupy_module.cuda
    additions: dict[Any, dict[str, Any]] = {
        cuda: {
            "Event": Event,
            "get_elapsed_time": lambda start, end: end.milliseconds - start.milliseconds,
            "set_allocator": set_allocator,
        },
        cuda.runtime: {"CUDARuntimeError": RuntimeError},
        cuda.Device: {
            "attributes": {**cuda.Device.attributes, "L2CacheSize": 1 << 20},
            "synchronize": lambda self: None,
        },
        cupy: {
            "RawKernel": kernel,
            "float32": np.float32,
            "int64": np.int64,
            "ones": lambda count, dtype: ndarray(np.ones(count >> 10, dtype)),
            "empty_like": lambda array: cupy.empty(array.shape, array.dtype),
            "copyto": lambda target, source: target.fill(1),
        },
    }
    for owner, attributes in additions.items():
        for name, value in attributes.items():
            setattr(owner, name, value)
    return cupy
