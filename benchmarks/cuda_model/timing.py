"""How long a launch takes on an H100, from what the simulator counts: docs/gpu-model.md.

A launch takes as long as the busiest of what it needs, somewhat longer where several are busy; and
what it costs to begin.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from _support.simt import Record

HostArray = np.ndarray[Any, Any]

# NVIDIA H100 SXM. Clocks, widths and sizes are its data sheet's; what memory and schedulers reach
# of them, and latencies, are what microbenchmarks of GPUs of this kind commonly find.
MULTIPROCESSORS = 132
CLOCK = 1.755e9  # cycles a second
SCHEDULERS = 4  # of a multiprocessor: each issues an instruction a cycle
ISSUED = 0.9  # of these slots
SECTOR = 32  # bytes
SECTORS_PER_WAVEFRONT = 4  # that L1 serves in a cycle
MISS_LATENCY = 350  # cycles: L2's 265, of a quarter the memory's 620
L2_BANDWIDTH = 5.5e12  # bytes a second, of all
L2_PORT = 64  # bytes a cycle, of a multiprocessor
ATOMICS = MULTIPROCESSORS * CLOCK  # sectors a second, of all
DRAM_BANDWIDTH = 0.9 * 3.35e12  # bytes a second
LAUNCH = 1.2e-6  # seconds between a launch and the next
SHORTEST = 1.5e-6  # seconds that an empty kernel takes
SHARPNESS = 4  # of the maximum: where two are equally busy, the time is 2 ** (1 / 4) times that

MAX_WARPS, MAX_BLOCKS, REGISTERS = 64, 32, 65536  # of a multiprocessor
REGISTERS_AT_ONCE = 256  # that a warp is given
SHARED_BYTES, SHARED_OF_BLOCK = 227 * 1024, 1024  # the second, beside what a kernel asks for


def resident_blocks(threads: int, registers: int, shared: int) -> int:
    """Return how many blocks a multiprocessor holds at once."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    return min(
        MAX_BLOCKS,
        MAX_WARPS // warps,
        REGISTERS // (of_warp * warps),
        SHARED_BYTES // (shared + SHARED_OF_BLOCK),
    )


def makespan(costs: Iterable[float], machines: int) -> float:
    """Return when the last of some blocks ends; each begins where one has ended."""
    ends = [0.0] * machines
    for cost in costs:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


class Times(NamedTuple):
    """Seconds that a launch needs of each part of the GPU."""

    issue: float  # instructions
    l1: float  # L1 and shared memory
    l2: float
    atomics: float
    memory: float
    latency: float  # of the warps that fit, each waiting for its own results

    @property
    def total(self) -> float:
        """Seconds of the launch."""
        together = math.fsum(part**SHARPNESS for part in self) ** (1 / SHARPNESS)
        return max(together, SHORTEST) + LAUNCH

    @property
    def bound(self) -> str:
        """What takes longest."""
        return max(zip(self, self._fields, strict=True))[1]


def zero_time(nbytes: int) -> float:
    """Return the seconds of a launch that sets memory to zero."""
    return max(nbytes / DRAM_BANDWIDTH, SHORTEST) + LAUNCH


def wavefronts(counts: dict[str, HostArray]) -> HostArray:
    """Return the cycles of L1 and shared memory that each block needs."""
    result = counts["shared_wavefronts"].astype(float) + counts["local_requests"]
    for kind in ("load", "store", "atomic"):
        sectors = counts[f"{kind}_sectors"] / SECTORS_PER_WAVEFRONT
        result += np.maximum(counts[f"{kind}_requests"], sectors)
    return result


def times_of(record: Record, registers: int, compulsory_bytes: float, repeats: int = 1) -> Times:
    """Return the times of a launch of which some blocks have run.

    Parameters
    ----------
    record : Record
        With the profile of blocks, one of each of as many equal runs of all blocks.
    registers : int
        Of a thread.
    compulsory_bytes : float
        What memory must move at least, for these blocks.
    repeats : int
        How many times as many blocks the launch has, all alike.
    """
    assert record.profile is not None
    timings, counts = record.profile.timings, record.profile.counts
    blocks, threads = int(np.prod(record.grid)), int(np.prod(record.threads))
    number = len(timings)
    # Which block stands for each.
    whole = np.tile(np.arange(blocks) * number // blocks, repeats)
    bytes_of_l2 = (counts["block_load_sectors"] + counts["store_sectors"]) * SECTOR
    resident = MULTIPROCESSORS * resident_blocks(threads, registers, record.shared_bytes)

    def cycles(of_block: HostArray, machines: int = MULTIPROCESSORS) -> float:
        return makespan(of_block[whole], machines) / CLOCK

    return Times(
        issue=cycles(timings["slots"] / (SCHEDULERS * ISSUED)),
        l1=cycles(wavefronts(counts)),
        l2=max(cycles(bytes_of_l2 / L2_PORT), bytes_of_l2[whole].sum() / L2_BANDWIDTH),
        atomics=counts["atomic_sectors"][whole].sum() / ATOMICS,
        memory=repeats * compulsory_bytes / DRAM_BANDWIDTH,
        latency=cycles(timings["cycles"], resident),
    )
