"""Devices and their clocks: the CPU, and a CUDA device through CuPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from harness import floor
from harness.implementations import Call, Clock
from roipool.tools.libraries.timing import timed

__all__ = ["Cpu", "Cuda", "Device", "open_device"]

# Keeps a device busy for about 2 ms while the host issues the timed call: several times as long as
# a slow host needs for all levels of a pyramid.
_HOLD = """
extern "C" __global__ void hold(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
}
"""
_HOLD_CYCLES = 4_000_000


class Device(Protocol):
    """The interface of a device."""

    name: str
    clocks: Mapping[str, Clock]

    def move(self, array: Any) -> Any:
        """Copy a NumPy array to the device."""

    def bandwidth(self, threads: int) -> float:
        """Measure the memory bandwidth in bytes per second."""

    def facts(self) -> dict[str, str]:
        """Describe the device."""


class Cpu:
    """The CPU, timed by wall clock, with all thread pools idle before the first call."""

    name = "cpu"

    def __init__(self) -> None:
        self.clocks: Mapping[str, Clock] = {"wall": timed}

    def move(self, array: Any) -> Any:
        """Return a NumPy array unchanged."""
        return array

    def bandwidth(self, threads: int) -> float:
        """Measure the memory bandwidth in bytes per second."""
        return floor.memory_bandwidth(threads)

    def facts(self) -> dict[str, str]:
        """Return nothing: the processor is described with the machine."""
        return {}


class Cuda:
    """A CUDA device, timed by events on the current stream, which torch's operators also use.

    Before a ``cold`` call, a buffer of twice the size of the second-level cache is read, so that
    the cache holds nothing of the arrays and no lines to write back. A ``warm`` call directly
    follows the same call. In both, the device is kept busy while the call is issued, so that only
    the device's own time counts, unless the host needs longer. ``launch`` is the host's time until
    the call returns.

    Parameters
    ----------
    cupy : module
        CuPy.

    Raises
    ------
    ValueError
        If there is no device.
    """

    name = "cuda"

    def __init__(self, cupy: Any) -> None:
        try:
            self._device = cupy.cuda.Device()
            attributes = self._device.attributes
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ValueError(f"--backend cuda needs a CUDA device: {error}") from error
        self._cupy = cupy
        self._flush = cupy.zeros(2 * attributes["L2CacheSize"] // 4, cupy.float32)
        self._hold = cupy.RawKernel(_HOLD, "hold")
        self.clocks: Mapping[str, Clock] = {
            "cold": self._clock(lambda call: self._flush.sum()),
            "warm": self._clock(lambda call: call()),
            "launch": self._launch,
        }

    def move(self, array: Any) -> Any:
        """Copy a NumPy array to the device."""
        return self._cupy.asarray(array)

    def bandwidth(self, threads: int) -> float:
        """Measure a copy of 1 GiB in bytes per second, with each byte counted twice."""
        source = self._cupy.ones(1 << 28, self._cupy.float32)
        target = self._cupy.empty_like(source)
        copy = self.clocks["warm"]
        seconds = min(copy(lambda: [self._cupy.copyto(target, source)], 3) for _ in range(5))
        return 2 * source.nbytes / seconds

    def facts(self) -> dict[str, str]:
        """Return the names and versions of device, driver and CuPy."""
        runtime = self._cupy.cuda.runtime
        return {
            "device": runtime.getDeviceProperties(self._device.id)["name"].decode(),
            "driver": str(runtime.driverGetVersion()),
            "cuda": str(runtime.runtimeGetVersion()),
            "cupy": self._cupy.__version__,
        }

    def _clock(self, before: Callable[[Call], object]) -> Clock:
        def seconds(call: Call, repeats: int) -> float:
            start, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
            total = 0.0
            for _ in range(repeats):
                before(call)
                self._hold((1,), (1,), (self._cupy.int64(_HOLD_CYCLES),))
                start.record()
                result = call()
                end.record()
                end.synchronize()
                del result
                total += self._cupy.cuda.get_elapsed_time(start, end) / 1e3
            return total / repeats

        return seconds

    def _launch(self, call: Call, repeats: int) -> float:
        total = 0.0
        for _ in range(repeats):
            self._device.synchronize()
            start = time.perf_counter()
            result = call()
            total += time.perf_counter() - start
            del result
        self._device.synchronize()
        return total / repeats


def open_device(backend: str) -> Device:
    """Return the device of ``cpu`` or ``cuda``; raise ValueError if there is none."""
    if backend == "cpu":
        return Cpu()
    try:
        import cupy
    except ImportError as error:
        raise ValueError(f"--backend cuda needs CuPy, which cannot be imported: {error}") from error
    return Cuda(cupy)
