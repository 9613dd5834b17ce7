"""Compare random calls of the public functions with the oracle and with related calls."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec

from roipool import _cpu
from roipool._system_info import usable_processors
from roipool.systems import SYSTEMS

from .front_ends import LIBRARIES, ROWS
from .tasks import CallRange, CallsReport, run_task

CALLS_OF_A_TASK = 50


def main() -> int:
    """Run the program; return 1 if a call failed."""
    parser = _parser()
    arguments = parser.parse_args()
    front_ends = tuple(arguments.front_end or ())
    for library in front_ends:
        if find_spec(library) is None:
            parser.error(f"--front-end {library}: it is not installed")
    operations = tuple(arguments.operation or (ROWS if front_ends else SYSTEMS))
    first = arguments.first
    tasks = [
        CallRange(
            arguments.seed,
            start,
            min(start + CALLS_OF_A_TASK, first + arguments.calls),
            operations,
            arguments.instruction_set,
            arguments.tiny,
            front_ends,
        )
        for start in range(first, first + arguments.calls, CALLS_OF_A_TASK)
    ]
    total, start, printed = CallsReport(), time.monotonic(), time.monotonic()
    for report in _reports(tasks, arguments.jobs):
        total.add(report)
        for line in report.lines:
            print(line, flush=True)
        if time.monotonic() - printed > arguments.every:
            printed = time.monotonic()
            print(_summary(total, printed - start), flush=True)
    _print_table(total)
    print(_summary(total, time.monotonic() - start))
    return int(total.failures.total() > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m roipool.tools.random_calls", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--calls", type=int, default=20_000, help="number (default 20000)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument(
        "--operation", action="append", choices=tuple(SYSTEMS), help="only this one; repeatable"
    )
    parser.add_argument(
        "--front-end",
        action="append",
        choices=LIBRARIES,
        help="instead compare with calls of this installed library; repeatable",
    )
    parser.add_argument(
        "--instruction-set", choices=_cpu.instruction_sets(), default=_cpu.instruction_set()
    )
    parser.add_argument(
        "--tiny", action="store_true", help="tiny maps and few boxes: several times as many calls"
    )
    parser.add_argument("--jobs", type=int, default=usable_processors(), help="processes")
    parser.add_argument("--every", type=float, default=60, help="seconds between progress lines")
    return parser


def _reports(tasks: list[CallRange], jobs: int) -> Iterator[CallsReport]:
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    # Not forked, since OpenMP's threads do not survive a fork.
    done = 0
    try:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            for report in pool.map(run_task, tasks):
                yield report
                done += 1
    except BrokenProcessPool:
        sys.exit(f"a process died after call {tasks[done].first}: repeat from there with --jobs 1")


def _print_table(total: CallsReport) -> None:
    print(f"{'operation':<34} {'type':<9} {'calls':>8} {'numbers':>14}")
    for operation, dtype in sorted(total.calls):
        key = (operation, dtype)
        print(f"{operation:<34} {dtype:<9} {total.calls[key]:>8,} {total.numbers[key]:>14,}")
    for subject, count in sorted(total.by_subject.items()):
        print(f"compared with {subject:<30} {count:>24,}")


def _summary(total: CallsReport, seconds: float) -> str:
    failures = ", ".join(
        f"{count} of {name} ({subject})"
        for (name, subject), count in sorted(total.failures.items())
    )
    return (
        f"{total.calls.total():,} calls, {total.numbers.total():,} numbers in {seconds:.0f} s; "
        f"error at most {total.worst:.2f} x tolerance; failed: {failures or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(main())
