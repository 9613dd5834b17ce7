"""Models the time of the CUDA kernels on an H100, beside plain kernels with atomics.

Writes ``benchmarks/cuda_times.md``; needs ``pip install -e . --group cuda`` and a C++ compiler, but
no GPU. The simulator executes NVRTC's PTX, for a part of each launch's blocks. The model is
``cuda_model/timing.py``; docs/gpu-model.md states its assumptions.

    python benchmarks/cuda_times.py          # write the table
    python benchmarks/cuda_times.py --check  # exit status 1 if it has changed
    python benchmarks/cuda_times.py --row "W1a*backward"  # print some rows
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from _support import emulator, nvrtc, simt
from cuda_model import yardsticks
from cuda_model.cases import Move, task_of
from cuda_model.costs import costs_of
from cuda_model.timing import MISS_LATENCY, Times, times_of, zero_time
from harness import ours
from harness.floor import compulsory_bytes
from harness.pages import write_or_compare
from harness.workloads import changed, choose

import roipool
from roipool.tools.libraries import Task

RESULT = Path(__file__).with_suffix(".md")
PAGE = """\
# How long the CUDA kernels take, by a model

**Nothing here is measured.** Written by `python benchmarks/cuda_times.py`: what the simulator
counts of NVRTC {version}'s PTX, made times of an H100 (SXM) by a model whose assumptions and error
[docs/gpu-model.md](../docs/gpu-model.md) states: 30 % of a time, 25 % of a ratio. Workloads are
those of the benchmark harness, whole; float32 where a row names no type. The *yardstick* is the
plain kernel: a thread for each pooled value, atomics in the backward, whose map another launch sets
to zero first (`cuda_model/yardsticks.cu`); of float16 it sums in float32, as ours does, and rounds
once. Bins that move, and those with channels of their own, have none. No time of the host is in it.

{closing}

- **yardstick / ours**: how many times as fast as the yardstick ours is; **goal**: what it is to be.
- **x memory**: ours over the time in which memory moves what any kernel must.
- **reached**: or what takes our launches' time: each part of the GPU is busy for so much of it.

## Each kernel

Microseconds of all its launches; then what each part of the GPU needs alone: issuing instructions,
L1 and shared memory, L2, its atomics, memory, and the waits of the warps that fit on the GPU.

{details}
"""
CLOSING = [
    "workload",
    "ours, us",
    "yardstick, us",
    "yardstick / ours",
    "goal",
    "x memory",
    "reached",
]
DETAILS = ["workload", "kernel", "launches", "us"]
# Number of blocks executed per launch, one from each of as many equal parts of the grid; planning
# kernels run completely, because engines read their output.
SAMPLE = 48


class Row(NamedTuple):
    """A workload, and the goal: how many times as fast as the yardstick a call should be.

    Operations for which there is no yardstick have no goal.
    """

    code: str
    backward: bool
    goal: float | None = None
    layout: str | None = None
    channels: int | None = None  # fewer than the workload's, if channels are alike and arrays large
    at_once: bool = False  # one call for all levels
    dtype: str = "float32"  # or float16 for forwards; the yardstick has no float16 atomics

    @property
    def name(self) -> str:
        """The name of the row."""
        what = [
            f" {self.layout}" if self.layout else "",
            f" {self.dtype}" if self.dtype != "float32" else "",
            " all levels" if self.at_once else "",
        ]
        return f"{self.code}{''.join(what)} {'backward' if self.backward else 'forward'}"


ROWS = (
    Row("W1a", False, 3),
    Row("W3a", False, 3),
    Row("W4a", False, 3),
    Row("W5a", False, 3, channels=256),
    Row("W6a", False, 2),
    Row("W1a", False, 3, "NHWC"),
    Row("W1a", False, 3, at_once=True),
    *(Row(code, False, 4, dtype="float16") for code in ("W1a", "W3a", "W4a", "W6a")),
    Row("W1a", False, 4, "NHWC", dtype="float16"),
    Row("W1a", True, 2),
    Row("W3a", True, 2),
    Row("W4a", True, 1.3),
    Row("W5a", True, 2, channels=256),
    Row("W6a", True, 2),
    Row("W1a", True, 2, "NHWC"),
    Row("W1a", True, 2, at_once=True),
    *(
        Row(code, backward)
        for code in ("rfcn-pool", "rfcn-align", "rfcn-deform", "fpn-deform")
        for backward in (False, True)
    ),
)


def chosen(kernel: str, blocks: int) -> Any:
    """Return the indices of the blocks to execute."""
    if kernel.startswith("plan_") or blocks <= SAMPLE:
        return np.arange(blocks)
    edges = np.arange(SAMPLE + 1) * blocks // SAMPLE
    return np.random.default_rng(0).integers(edges[:-1], edges[1:])


PROFILING = simt.Profiling(chosen, costs_of, MISS_LATENCY)


@cache
def registers_of(text: str, options: tuple[str, ...]) -> dict[str, int]:
    """Return the registers of each kernel of a text."""
    target = f"--gpu-architecture=sm_{simt.ARCHITECTURE}"
    found = nvrtc.resources(text, target, "-ftz=true", *options)
    return {kernel: use.registers for kernel, use in found}


class Launch(NamedTuple):
    """A launch, and its time by the model."""

    kernel: str
    times: Times


class Result(NamedTuple):
    """A row's launches, and the bytes that the yardstick sets to zero before each launch."""

    row: Row
    ours: list[Launch]
    yardstick: list[Launch]
    zeroed: list[int]

    @property
    def seconds(self) -> tuple[float, float]:
        """The total time of roipool's launches, and of the yardstick's."""
        ours, plain = (
            sum(one.times.total for one in launches) for launches in (self.ours, self.yardstick)
        )
        return ours, plain + sum(map(zero_time, self.zeroed))


# ---- Running the launches


def result_of(row: Row, cupy: Any) -> Result:
    """Run a row's launches."""
    whole = choose(row.code)[0]
    workload = changed(whole, layout=row.layout, channels=row.channels)
    repeats = whole.channels // workload.channels
    task = task_of(workload, row.backward, row.dtype)
    result = Result(row, [], [], [])
    levels = [task._replace(levels=[level]) for level in task.levels]
    for one in [task] if row.at_once else levels:
        call = prepared(one, row.at_once, cupy.asarray)  # all blocks, for the backward's argmax
        result.ours.extend(timed(call, compulsory_bytes(one), repeats))
    for one in levels if row.goal is not None else []:
        run = functools.partial(yardsticks.run, one, cupy)
        result.yardstick.extend(timed(run, compulsory_bytes(one), repeats))
        if row.backward:
            result.zeroed.append(one.levels[0].features.nbytes * repeats)
    return result


def prepared(task: Task, at_once: bool, move: Move) -> Callable[[], Any]:
    """Return roipool's call for a task, optionally for all levels at once."""
    if not at_once:
        return ours.prepare(ours.moved(task, move))
    rois = move(np.concatenate([level.rois for level in task.levels]))
    maps, scales = zip(*((move(x.features), x.scale) for x in task.levels), strict=True)
    options: dict[str, Any] = {"sampling_ratio": task.sampling_ratio, "aligned": task.aligned}
    if not task.backward:
        return lambda: roipool.multilevel_roi_align(maps, rois, 7, scales, **options)
    grad, shapes = move(np.concatenate([x.grad for x in task.levels])), [x.shape for x in maps]
    return lambda: roipool.multilevel_roi_align_backward(grad, rois, shapes, scales, **options)


def timed(call: Callable[[], Any], compulsory: int, repeats: int) -> Iterator[Launch]:
    """Run a call with `compulsory` bytes to move, and yield its launches."""
    with simt.recorded(PROFILING) as records:
        call()
    moved = [0 if record.kernel.startswith("plan_") else traffic(record) for record in records]
    for record, its in zip(records, moved, strict=True):
        assert record.profile is not None
        registers = registers_of(record.profile.text, record.profile.options)[record.kernel]
        share = compulsory * its / sum(moved)
        yield Launch(record.kernel, times_of(record, registers, share, repeats))


def traffic(record: simt.Record) -> int:
    """Return the relative number of sectors that a launch loads, stores and adds to."""
    assert record.profile is not None
    counts, ran = record.profile.counts, len(record.profile.timings)
    kinds = ("block_load_sectors", "store_sectors", "atomic_sectors")
    return sum(int(counts[kind].sum()) for kind in kinds) * int(np.prod(record.grid)) // ran


# ---- The page


def micro(seconds: float) -> str:
    """Format microseconds with three digits."""
    value = seconds * 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def closing_row(result: Result) -> list[str]:
    """Return a row of the first table."""
    ours, plain = result.seconds
    row, ratio = result.row, round(plain / ours, 2)
    parts = {part: sum(getattr(one.times, part) for one in result.ours) for part in Times._fields}
    busiest = sorted(parts, key=lambda part: -parts[part])[:2]
    why = ", ".join(f"{part} {parts[part] / ours:.0%}" for part in busiest)
    against = ["", "", ""] if row.goal is None else [micro(plain), f"{ratio:.2f}", f"{row.goal:g}"]
    return [
        row.name,
        micro(ours),
        *against,
        f"{ours / max(parts['memory'], 1e-9):.1f}",
        "yes" if row.goal is not None and ratio >= row.goal else why,
    ]


def detail_rows(result: Result) -> Iterator[list[str]]:
    """Yield the rows of the second table: one for each kernel, over all its launches."""
    for whose, launches in (("", result.ours), ("*", result.yardstick)):
        for kernel in dict.fromkeys(one.kernel for one in launches):
            its = [one.times for one in launches if one.kernel == kernel]
            parts = [micro(sum(getattr(times, part) for times in its)) for part in Times._fields]
            total = micro(sum(times.total for times in its))
            yield [result.row.name, f"{whose}{kernel}{whose}", str(len(its)), total, *parts]
    if result.zeroed:
        total = micro(sum(map(zero_time, result.zeroed)))
        unused = [""] * len(Times._fields)
        yield [result.row.name, "*zeros*", str(len(result.zeroed)), total, *unused]


def table(columns: Sequence[str], texts: int, rows: Iterable[list[str]]) -> str:
    """Return a table whose first columns are text."""
    rule = [*["---"] * texts, *["---:"] * (len(columns) - texts)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))


def page(pattern: str) -> str:
    """Run the rows whose names match, and return the page."""
    results = []
    with emulator.active() as cupy, simt.simulated():
        for row in ROWS:
            if fnmatch.fnmatch(row.name, pattern):
                print(row.name, file=sys.stderr)
                results.append(result_of(row, cupy))
    details = itertools.chain.from_iterable(map(detail_rows, results))
    return PAGE.format(
        version=nvrtc.version(),
        closing=table(CLOSING, 1, map(closing_row, results)),
        details=table([*DETAILS, *Times._fields], 2, details),
    )


def main() -> int:
    """Write the page, or compare it with the model's current results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare, and exit 1 on a difference")
    parser.add_argument("--row", metavar="PATTERN", help="print the rows with matching names")
    arguments = parser.parse_args()
    if arguments.row:
        print(page(arguments.row))
        return 0
    return write_or_compare(RESULT, page("*"), arguments.check)


if __name__ == "__main__":
    sys.exit(main())
