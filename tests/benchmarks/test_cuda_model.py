"""The timing model, on kernels with known results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from _support import simt
from _support.simt import ptx
from cuda_model.costs import cost_of, costs_of, predicates_of
from cuda_model.timing import (
    ATOMICS,
    CLOCK,
    DRAM_BANDWIDTH,
    ISSUED,
    LAUNCH,
    SCHEDULERS,
    SHORTEST,
    Times,
    makespan,
    resident_blocks,
    times_of,
)

# Threads, registers and bytes of shared memory of a block, and the number of such blocks on a
# multiprocessor of compute capability 9.0 by NVIDIA's occupancy tables.
OCCUPANCY = {
    (256, 32, 0): 8, (256, 64, 0): 4, (256, 65, 0): 3, (1024, 32, 0): 2, (1024, 64, 0): 1,
    (32, 16, 0): 32, (256, 64, 32 * 1024): 4, (256, 32, 48 * 1024): 4, (128, 255, 0): 2,
}  # fmt: skip


def test_how_many_blocks_fit() -> None:
    found = {block: resident_blocks(*block) for block in OCCUPANCY}
    assert found == OCCUPANCY


def test_blocks_begin_where_others_end() -> None:
    assert makespan([3, 1, 1, 1], 2) == 3
    assert makespan([1, 1, 1, 3], 2) == 4  # the longest comes last
    assert makespan([5], 100) == 5
    assert makespan([1] * 133, 132) == 2


def test_opcodes_have_their_costs() -> None:
    order = ["mov.u32", "add.s32", "add.s64", "mul.lo.s64", "div.rn.ftz.f32", "div.s32", "div.s64"]
    slots = [cost_of(opcode).slots for opcode in order]
    assert slots == sorted(slots)
    assert cost_of("fma.rn.ftz.f32") == cost_of("mul.rn.f32") == (1, 4)
    assert cost_of("ld.shared.v4.f32").latency < cost_of("ld.global.nc.f32").latency
    assert cost_of("ld.param.u64").slots == 0


KERNEL = """
.visible .entry kernel()
{
    mul.f32 %f1, %f2, %f3;
    fma.rn.f32 %f4, %f2, %f3, %f5;
    setp.neu.f32 %p1, %f2, 0f00000000;
    selp.f32 %f5, %f4, %f5, %p1;
    selp.f32 %f6, %f1, %f6, %p1;
    selp.f32 %f7, %f6, %f5, %p1;
    add.f32 %f8, %f1, %f7;
    ret;
}
"""


def test_arithmetic_under_a_predicate_is_one_instruction() -> None:
    (entry,) = ptx.entries(KERNEL)
    # The second selection's operand is used again, and the third writes a third register.
    assert predicates_of(entry) == {3}
    assert costs_of(entry)["slots"].tolist() == [1, 1, 1, 0, 1, 1, 1, 0]


def times(compulsory: float = 0, repeats: int = 1, grid: int = 264, **counts: int) -> Times:
    """Return the times of a launch from two executed blocks, each with these counts."""
    names = [name for name, *_ in simt.Counts._fields_]
    timings = np.zeros(2, [("slots", float), ("cycles", float)])
    for name in ("slots", "cycles"):
        timings[name] = counts.pop(name, 0)
    columns = {name: np.full(2, counts.get(name, 0)) for name in names}
    profile = simt.Profile("", (), timings, columns)
    record = simt.Record("kernel", (grid,), (256,), 0, simt.Counts(), profile)
    return times_of(record, 32, compulsory, repeats)


# Two blocks for each multiprocessor: seconds of each part.
WORK: dict[str, tuple[dict[str, Any], float]] = {
    "issue": ({"slots": 10**6}, 2e6 / (SCHEDULERS * ISSUED) / CLOCK),
    "l1": ({"shared_wavefronts": 10**6}, 2e6 / CLOCK),
    "atomics": ({"atomic_sectors": 10**6}, 264e6 / ATOMICS),
    "memory": ({"compulsory": 1e9}, 1e9 / DRAM_BANDWIDTH),
    "latency": ({"cycles": 10**6}, 1e6 / CLOCK),  # both fit at once
}


@pytest.mark.parametrize("part", WORK)
def test_what_is_busy(part: str) -> None:
    given, seconds = WORK[part]
    found = times(**given)
    assert found.bound == part
    assert math.isclose(getattr(found, part), seconds, rel_tol=1e-9)
    assert found.total >= seconds + LAUNCH


def test_more_of_the_same_takes_longer() -> None:
    one = times(slots=10**6, cycles=10**5, compulsory=1e8)
    many = times(slots=10**6, cycles=10**5, compulsory=1e8, repeats=8)
    assert math.isclose(many.issue, 8 * one.issue)
    assert math.isclose(many.memory, 8 * one.memory)
    # Eight blocks of 256 threads fit on a multiprocessor, so a quarter of them at once.
    assert math.isclose(many.latency, 2 * one.latency)


def test_few_blocks_leave_the_gpu_idle() -> None:
    assert math.isclose(times(slots=10**6, grid=2).issue, times(slots=10**6, grid=132).issue)
    assert math.isclose(times(slots=10**6, grid=133).issue, times(slots=10**6, grid=264).issue)


def test_an_empty_launch_takes_what_launching_takes() -> None:
    assert times().total == SHORTEST + LAUNCH
