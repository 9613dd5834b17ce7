"""The benefit of the memory cache: times and resident memory for several limits.

    python benchmarks/cache.py [rounds]

Prints, for several limits, the median CPU time of calls that each allocate a result, on one thread,
in turns in one process, as a ratio to the limit 0; and the growth of resident memory by a loop over
the levels of a feature pyramid, in separate processes.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import roipool

LIMITS = (0, 64, 128, 1024)  # MiB
MIB = 2**20


def boxes(count: int, size: int) -> np.ndarray:
    """Return boxes of image 0 within a map."""
    corners = np.random.default_rng(0).uniform(0, size / 2, (count, 4))
    corners[:, 2:] += corners[:, :2]
    return np.column_stack([np.zeros(count), corners]).astype(np.float32)


def forward(channels: int, size: int, count: int, bins: int) -> Callable[[], object]:
    """Return a call of roi_align that allocates its result."""
    maps = np.ones((1, channels, size, size), np.float32)
    rois = boxes(count, size)
    return lambda: roipool.roi_align(maps, rois, bins, sampling_ratio=2)


def backward(channels: int, size: int, count: int, bins: int) -> Callable[[], object]:
    """Return a call of roi_align_backward that allocates its result."""
    shape = (1, channels, size, size)
    rois = boxes(count, size)
    grad = np.ones((count, channels, bins, bins), np.float32)
    return lambda: roipool.roi_align_backward(grad, rois, shape, sampling_ratio=2)


CALLS = {
    "forward, result 48 MiB": lambda: forward(256, 200, 1000, 7),
    "backward, result 39 MiB": lambda: backward(256, 200, 500, 7),
    "forward, result 766 MiB": lambda: forward(1024, 50, 1000, 14),
    "forward, result 1.2 MiB": lambda: forward(256, 50, 25, 7),
}


def times(call: Callable[[], object], rounds: int) -> dict[int, float]:
    """Return the median seconds of a call for each limit, measured in turns."""
    found: dict[int, list[float]] = {limit: [] for limit in LIMITS}
    for _ in range(rounds):
        for limit in LIMITS:
            roipool.free_memory()
            roipool.set_cache_limit(limit)
            call()
            for _ in range(2):
                begin = time.process_time()
                call()
                found[limit].append(time.process_time() - begin)
    return {limit: statistics.median(seconds) for limit, seconds in found.items()}


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def pyramid_loop(limit: int) -> int:
    """Return the growth of resident memory by a loop over the levels of a pyramid, in MiB."""
    roipool.set_cache_limit(limit)
    levels = [np.ones((1, 256, size, size), np.float32) for size in (200, 100, 50, 25)]
    rois = [boxes(250, level.shape[3]) for level in levels]
    roipool.roi_align(levels[3], rois[3][:1], 7)
    before = resident()
    for _ in range(10):
        for level, regions in zip(levels, rois, strict=True):
            pooled = roipool.roi_align(level, regions, 7, sampling_ratio=2)
            roipool.roi_align_backward(pooled, regions, level.shape, sampling_ratio=2)
            del pooled
    return (resident() - before) // MIB


def main() -> None:
    """Print the tables."""
    roipool.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print(f"{'limit, MiB':28}", *(f"{limit:>8}" for limit in LIMITS))
    for name, make in CALLS.items():
        found = times(make(), rounds)
        print(f"{name:28}", *(f"{found[limit] / found[0]:8.2f}" for limit in LIMITS))
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        left = pool.map(pyramid_loop, LIMITS, chunksize=1)
    print(f"{'pyramid loop leaves, MiB':28}", *(f"{mebibytes:8}" for mebibytes in left))


if __name__ == "__main__":
    main()
