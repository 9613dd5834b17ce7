"""Makes and compares a range of a seed's calls, in a separate process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from roipool import _cpu
from roipool.systems.case import held_by
from roipool.verification.check import check, subjects
from roipool.verification.generate import draw

from .front_ends import guises_of_call, relation_of, take_bytes
from .shrink import catalogue_row, line_of, shrink_call

SHRUNK = 3  # failures of one operation and subject that are shrunk; more are only counted


@dataclass
class CallsReport:
    """Results of some calls: counts of calls and numbers by operation and type, and failures."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    numbers: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_subject: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    worst: float = 0.0

    def add(self, other: CallsReport) -> None:
        """Add the counts of another report, but not its lines."""
        self.calls += other.calls
        self.numbers += other.numbers
        self.by_subject += other.by_subject
        self.failures += other.failures
        self.worst = max(self.worst, other.worst)


@dataclass(frozen=True)
class CallRange:
    """Calls `first` to `last` of a seed, without `last`."""

    seed: int
    first: int
    last: int
    operations: tuple[str, ...]
    instruction_set: str
    tiny: bool = False
    front_ends: tuple[str, ...] = ()


def run_task(task: CallRange) -> CallsReport:
    """Make the calls of a task."""
    _cpu.use_instruction_set(task.instruction_set)
    report = CallsReport()
    for number in range(task.first, task.last):
        case = draw(task.seed, number, task.operations, tiny=task.tiny)
        with_what = guises_of_call(number, task.front_ends)
        if not take_bytes(with_what):
            case = held_by(case, case.pooled_dtype)
        with_what = with_what or subjects(case, number)
        kind = (case.operation, case.dtype)
        report.calls[kind] += 1
        for finding in check(case, with_what, relation_of=relation_of):
            report.numbers[kind] += finding.comparison.count
            report.by_subject[finding.subject] += finding.comparison.count
            if finding.comparison.problem is None:
                report.worst = max(report.worst, finding.comparison.worst)
                continue
            key = (case.operation, finding.subject)
            report.failures[key] += 1
            if report.failures[key] <= SHRUNK:
                report.lines.append(f"call {number} of seed {task.seed}: {case.operation}")
                small, failure = shrink_call(case, finding)
                report.lines += [
                    f"  {failure.subject}, {failure.what}: {failure.comparison.problem}",
                    f"  {line_of(small, failure)}",
                    f"  for verification/catalogue.py: {catalogue_row(small)}",
                ]
            break
    return report
