"""The measurement: times implementations in turns, and collects the results."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness import floor, memory
from harness.agreement import Agreement, agreement
from harness.devices import Device
from harness.implementations import Clock, Implementation, open_ours, open_peer
from harness.workloads import Workload, task_of
from roipool.tools.libraries import Absent, InstalledLibrary, Task
from roipool.tools.libraries.timing import calls_per_turn

__all__ = ["Plan", "Row", "TimedCase", "measure", "rounds"]


@dataclass(frozen=True)
class Plan:
    """The plan of a measurement.

    Attributes
    ----------
    items : sequence of (Workload, bool)
        Workloads, and whether to call their backward.
    dtypes : sequence of str
        Types of the features.
    threads : sequence of int
        Numbers of threads.
    peers : mapping
        Libraries by name.
    pythons : dict
        Interpreters of peers in other environments.
    repeat : int
        Number of rounds.
    out_reuse : bool
        Whether all calls of roipool write into the same arrays.
    memory : bool
        Whether to measure roipool's peak memory.
    """

    items: Sequence[tuple[Workload, bool]]
    dtypes: Sequence[str]
    threads: Sequence[int]
    peers: Mapping[str, type[InstalledLibrary]]
    pythons: dict[str, str]
    repeat: int
    out_reuse: bool
    memory: bool


@dataclass
class Row:
    """One library's part of a case: the seconds of its rounds, or the reason for having none."""

    library: str
    version: str = ""
    absent: str = ""
    agreement: Agreement | None = None
    remark: str = ""  # known reason for differing results
    calls: int = 1
    seconds: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Return a quantile of the rounds' seconds."""
        return float(np.quantile(self.seconds, share))

    @property
    def median(self) -> float:
        """Median seconds of one call."""
        return self.quantile(0.5)


@dataclass
class TimedCase:
    """One operation of one workload for every library; the first row is roipool's."""

    workload: Workload
    backward: bool
    dtype: str
    threads: int
    clock: str
    compulsory_bytes: int
    output_bytes: int
    bandwidth: float
    rows: list[Row]
    peak_bytes: int | None = None

    @property
    def operation(self) -> str:
        """The name of the function."""
        return self.workload.operations[self.backward]

    @property
    def floor_seconds(self) -> float:
        """The time to move the compulsory bytes."""
        return self.compulsory_bytes / self.bandwidth

    def ratio(self, row: Row) -> float:
        """Return a library's time relative to roipool's."""
        return row.median / self.rows[0].median


def measure(plan: Plan, device: Device, tick: Callable[[str], None]) -> Iterator[TimedCase]:
    """Carry out a plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    device : Device
        The device.
    tick : callable
        Called with a description after each round, `rounds` times in total.

    Yields
    ------
    Case
        Each case as soon as it is complete.
    """
    for threads in plan.threads:
        with _implementations(plan, device, threads) as implementations:
            for (workload, backward), dtype in itertools.product(plan.items, plan.dtypes):
                task = task_of(workload, dtype, backward)
                bandwidth = device.bandwidth(threads)  # which wanders with the machine's load
                sizes = floor.compulsory_bytes(task), floor.output_bytes(task), bandwidth
                rows = [_introduced(c, workload, task, implementations[0]) for c in implementations]
                for name, clock in device.clocks.items():
                    case = TimedCase(workload, backward, dtype, threads, name, *sizes, _fresh(rows))
                    label = f"{workload.title} {case.operation}, {threads} threads"
                    for _ in _rounds(implementations, case.rows, clock, plan.repeat):
                        tick(label)
                    if plan.memory:
                        case.peak_bytes = memory.peak_bytes(
                            workload, dtype, backward, threads, plan.out_reuse
                        )
                    yield case


def rounds(plan: Plan, device: Device) -> int:
    """Return how often `measure` calls `tick`."""
    cases = len(plan.items) * len(plan.dtypes) * len(plan.threads) * len(device.clocks)
    return cases * plan.repeat


@contextlib.contextmanager
def _implementations(plan: Plan, device: Device, threads: int) -> Iterator[list[Implementation]]:
    """Open roipool, which comes first, and its peers."""
    with contextlib.ExitStack() as opened:
        implementations: list[Implementation] = [open_ours(threads, plan.out_reuse, device.move)]
        for name, peer in plan.peers.items():
            python = plan.pythons.get(name)
            implementations.append(open_peer(name, peer, threads, device.name, python))
            opened.callback(implementations[-1].close)
        yield implementations


def _introduced(
    implementation: Implementation, workload: Workload, task: Task, first: Implementation
) -> Row:
    """Prepare an implementation for a task, and compare its results with the first's."""
    row = Row(implementation.name, implementation.version)
    try:
        if implementation is not first and not workload.peers:
            raise Absent("not run: its behaviour for such boxes is undefined")
        implementation.prepare(task)
        if implementation is not first:
            row.agreement = agreement(first.results(), implementation.results())
            row.remark = implementation.remarks.get(task.levels[0].features.dtype.name, "")
    except (Absent, ValueError) as reason:
        row.absent = str(reason)
    return row


def _fresh(rows: list[Row]) -> list[Row]:
    return [replace(row, seconds=[]) for row in rows]


def _rounds(
    implementations: list[Implementation], rows: list[Row], clock: Clock, repeat: int
) -> Iterator[None]:
    """Run rounds in which each implementation has a turn; pause after each round."""
    for row, implementation in zip(rows, implementations, strict=True):
        seconds = _turn(implementation, row, clock)  # also warms up
        row.calls = 1 if row.absent else calls_per_turn(seconds)
    for _ in range(repeat):
        for row, implementation in zip(rows, implementations, strict=True):
            row.seconds.append(_turn(implementation, row, clock))
        yield


def _turn(implementation: Implementation, row: Row, clock: Clock) -> float:
    """Run one turn of an implementation; return NaN if it is absent or fails."""
    if not row.absent:
        try:
            return implementation.seconds(clock, row.calls)
        except Absent as reason:
            row.absent = str(reason)
    return math.nan
