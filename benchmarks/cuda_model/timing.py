"""Models the time of a launch on an H100 from the simulator's counts: docs/gpu-model.md.

A launch takes as long as its busiest resource, somewhat longer if several are busy, plus the cost
of starting it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from _support.simt import Record

HostArray = np.ndarray[Any, Any]

# NVIDIA H100 SXM. Clocks, widths and sizes are from its data sheet; latencies, and the fractions
# that memory and schedulers reach, are typical of microbenchmarks of such GPUs.
MULTIPROCESSORS = 132
CLOCK = 1.755e9  # cycles a second
SCHEDULERS = 4  # per multiprocessor; each issues one instruction per cycle
ISSUED = 0.9  # fraction of these issue slots that is used
SECTOR = 32  # bytes
SECTORS_PER_WAVEFRONT = 4  # sectors that L1 serves per cycle
MISS_LATENCY = 350  # cycles: 265 of L2 and, for a quarter of the misses, 620 of memory
L2_BANDWIDTH = 5.5e12  # bytes per second, in total
L2_PORT = 64  # bytes per cycle, per multiprocessor
ATOMICS = MULTIPROCESSORS * CLOCK  # sectors per second, in total
DRAM_BANDWIDTH = 0.9 * 3.35e12  # bytes per second
LAUNCH = 1.2e-6  # seconds between two launches
SHORTEST = 1.5e-6  # seconds of an empty kernel
SHARPNESS = 4  # of the smooth maximum: two equally busy resources take 2 ** (1 / 4) times as long

MAX_WARPS, MAX_BLOCKS, REGISTERS = 64, 32, 65536  # per multiprocessor
REGISTER_UNIT = 256  # allocation unit of a warp's registers
SHARED_BYTES, SHARED_OF_BLOCK = 227 * 1024, 1024  # per multiprocessor; reserved per block


def resident_blocks(threads: int, registers: int, shared: int) -> int:
    """Return how many blocks are resident on a multiprocessor."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    return min(
        MAX_BLOCKS,
        MAX_WARPS // warps,
        REGISTERS // (of_warp * warps),
        SHARED_BYTES // (shared + SHARED_OF_BLOCK),
    )


def makespan(costs: Iterable[float], machines: int) -> float:
    """Return the end of the last block, if each block starts as soon as a machine is free."""
    ends = [0.0] * machines
    for cost in costs:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


class Times(NamedTuple):
    """Seconds for which a launch uses each part of the GPU."""

    issue: float  # issue of instructions
    l1: float  # L1 and shared memory
    l2: float
    atomics: float
    memory: float
    latency: float  # latencies of the resident warps

    @property
    def total(self) -> float:
        """Total seconds of the launch."""
        together = math.fsum(part**SHARPNESS for part in self) ** (1 / SHARPNESS)
        return max(together, SHORTEST) + LAUNCH

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return max(zip(self, self._fields, strict=True))[1]


def zero_time(nbytes: int) -> float:
    """Return the seconds of a launch that sets memory to zero."""
    return max(nbytes / DRAM_BANDWIDTH, SHORTEST) + LAUNCH


def wavefronts(counts: dict[str, HostArray]) -> HostArray:
    """Return the cycles of L1 and shared memory for each block."""
    result = counts["shared_wavefronts"].astype(float) + counts["local_requests"]
    for kind in ("load", "store", "atomic"):
        sectors = counts[f"{kind}_sectors"] / SECTORS_PER_WAVEFRONT
        result += np.maximum(counts[f"{kind}_requests"], sectors)
    return result


def times_of(record: Record, registers: int, compulsory_bytes: float, repeats: int = 1) -> Times:
    """Return the times of a launch from a sample of its blocks.

    Parameters
    ----------
    record : Record
        The record of the launch, with the profile of one block from each of several equal parts.
    registers : int
        Registers of a thread.
    compulsory_bytes : float
        Bytes that memory must move for these blocks.
    repeats : int
        Factor by which the launch has more blocks, all alike.
    """
    assert record.profile is not None
    timings, counts = record.profile.timings, record.profile.counts
    blocks, threads = int(np.prod(record.grid)), int(np.prod(record.threads))
    number = len(timings)
    # The profiled block that represents each block.
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
