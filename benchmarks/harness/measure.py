"""The measurement: implementations in turns, and what comes of it."""

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
from roipool.tools.libraries import Absent, Library, Task
from roipool.tools.libraries.timing import calls_per_turn

__all__ = ["Case", "Plan", "Row", "measure", "rounds"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes
    ----------
    items : sequence of (Workload, bool)
        Workloads, and whether their backward is meant.
    dtypes : sequence of str
        Of the features.
    threads : sequence of int
        How many each implementation may use.
    peers : mapping
        Libraries by name.
    pythons : dict
        Interpreters of peers that live in other environments.
    repeat : int
        Rounds.
    out_reuse : bool
        Whether roipool writes into the same arrays every time.
    memory : bool
        Whether to measure roipool's peak memory too.
    """

    items: Sequence[tuple[Workload, bool]]
    dtypes: Sequence[str]
    threads: Sequence[int]
    peers: Mapping[str, type[Library]]
    pythons: dict[str, str]
    repeat: int
    out_reuse: bool
    memory: bool


@dataclass
class Row:
    """One library's part in a case: the seconds of its rounds, or why there are none."""

    library: str
    version: str = ""
    absent: str = ""
    agreement: Agreement | None = None
    remark: str = ""  # why its results differ, if that is known
    calls: int = 1
    seconds: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Return the seconds below which this share of the rounds lies."""
        return float(np.quantile(self.seconds, share))

    @property
    def median(self) -> float:
        """Seconds of one call."""
        return self.quantile(0.5)


@dataclass
class Case:
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
        """The name of the function that is called."""
        return self.workload.operations[self.backward]

    @property
    def floor_seconds(self) -> float:
        """The time in which the compulsory bytes can move."""
        return self.compulsory_bytes / self.bandwidth

    def ratio(self, row: Row) -> float:
        """Return how many times as long as roipool a library takes."""
        return row.median / self.rows[0].median


def measure(plan: Plan, device: Device, tick: Callable[[str], None]) -> Iterator[Case]:
    """Measure everything.

    Parameters
    ----------
    plan : Plan
        What.
    device : Device
        Where.
    tick : callable
        Called with a description after each round; there are `rounds` of them.

    Yields
    ------
    Case
        Each as it is finished.
    """
    for threads in plan.threads:
        bandwidth = device.bandwidth(threads)
        with _implementations(plan, device, threads) as implementations:
            for (workload, backward), dtype in itertools.product(plan.items, plan.dtypes):
                task = task_of(workload, dtype, backward)
                sizes = floor.compulsory_bytes(task), floor.output_bytes(task), bandwidth
                rows = [_introduced(c, workload, task, implementations[0]) for c in implementations]
                for name, clock in device.clocks.items():
                    case = Case(workload, backward, dtype, threads, name, *sizes, _fresh(rows))
                    label = f"{workload.title} {case.operation}, {threads} threads"
                    for _ in _rounds(implementations, case.rows, clock, plan.repeat):
                        tick(label)
                    if plan.memory:
                        case.peak_bytes = memory.peak_bytes(
                            workload, dtype, backward, threads, plan.out_reuse
                        )
                    yield case


def rounds(plan: Plan, device: Device) -> int:
    """Return how often `measure` ticks."""
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
    """Make an implementation ready for a task, and compare its results with the first one's."""
    row = Row(implementation.name, implementation.version)
    try:
        if implementation is not first and not workload.peers:
            raise Absent("not asked: what it does with such boxes is undefined")
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
    """Run round after round, in which everyone has a turn; stop for a moment after each."""
    for row, implementation in zip(rows, implementations, strict=True):
        seconds = _turn(implementation, row, clock)  # warms up, too
        row.calls = 1 if row.absent else calls_per_turn(seconds)
    for _ in range(repeat):
        for row, implementation in zip(rows, implementations, strict=True):
            row.seconds.append(_turn(implementation, row, clock))
        yield


def _turn(implementation: Implementation, row: Row, clock: Clock) -> float:
    """Run one implementation; NaN if it is absent or drops out."""
    if not row.absent:
        try:
            return implementation.seconds(clock, row.calls)
        except Absent as reason:
            row.absent = str(reason)
    return math.nan
