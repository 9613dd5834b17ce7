"""Measures how long calls take while other processes keep the cores busy.

Calls on one thread and on several take turns, each beside none, one, two and six processes that
never wait. Several threads are those of OpenMP, and those of a pool (docs/performance.md). Idle
threads of OpenMP matter as much as those that work, so every row is measured in a process of its
own; the environment may set how they wait.

    python benchmarks/busy_cores.py --json benchmarks/results/busy-cores.json
    OMP_WAIT_POLICY=passive python benchmarks/busy_cores.py --json passive.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from harness import machine, ours
from harness.workloads import WORKLOADS, task_of

import roipool
from roipool import _cpu
from roipool._system_info import waiting_policies
from roipool.cli import files

BUSY = (0, 1, 2, 6)
NAMES = ("fpn-box", "small-call")
TURNS = 3


class Threads(NamedTuple):
    """The threads of calls: how many, and whether those of a pool."""

    number: int
    pool: bool = False

    def __str__(self) -> str:
        return f"{self.number} {'pooled' if self.pool else 'OpenMP'}" if self.number > 1 else "1"


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run processes that never wait."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.3 if count else 0)
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


def work(name: str, backward: bool, threads: Threads, calls: int) -> None:
    """Print the wall and processor seconds of calls as JSON."""
    roipool.set_num_threads(threads.number)
    _cpu.use_pool(threads.pool)
    call = ours.prepare(task_of(WORKLOADS[name], "float32", backward))
    call()
    call()
    wall, before = [], time.process_time()
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        wall.append(time.perf_counter() - begin)
    print(json.dumps({"wall": wall, "processor": (time.process_time() - before) / calls}))


def times_of(name: str, backward: bool, threads: Threads, calls: int) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--json", "-", "--work", name, str(int(backward))]
    command += [str(threads.number), str(int(threads.pool)), str(calls)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(
    name: str, backward: bool, busy: int, threads: list[Threads], calls: int
) -> list[dict[str, Any]]:
    """Return a row for each of `threads`."""
    wall: dict[Threads, list[float]] = {each: [] for each in threads}
    processor: dict[Threads, list[float]] = {each: [] for each in threads}
    with busy_processes(busy):
        for _ in range(TURNS):
            for each in threads:
                times = times_of(name, backward, each, calls)
                wall[each] += times["wall"]
                processor[each].append(times["processor"])
    return [
        {
            "workload": name,
            "operation": WORKLOADS[name].operations[backward],
            "busy": busy,
            "threads": each.number,
            "pool": each.pool,
            "median": statistics.median(wall[each]),
            "p90": statistics.quantiles(wall[each], n=10)[-1],
            "processor": statistics.mean(processor[each]),
        }
        for each in threads
    ]


def print_rows(rows: list[Any]) -> None:
    """Print times beside those of the first threads."""
    first = rows[0]
    for row in rows:
        threads = Threads(row["threads"], row["pool"])
        print(
            f"{row['operation']:<20} {row['busy']} busy, {threads!s:>8} threads:"
            f" median {row['median'] * 1e3:9.3f} ms ({row['median'] / first['median']:.2f}x),"
            f" p90 {row['p90'] * 1e3:9.3f} ms ({row['p90'] / first['p90']:.2f}x),"
            f" processor {row['processor'] * 1e3:9.3f} ms",
            flush=True,
        )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="1,2", help="the first is what others are compared to")
    parser.add_argument("--calls", type=int, default=40, help="calls of a turn")
    parser.add_argument("--json", required=True)
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        name, *numbers = options.work
        backward, count, pool, calls = (int(number) for number in numbers)
        work(name, bool(backward), Threads(count, bool(pool)), calls)
        return
    files.check_writable(options.json)
    threads = [
        Threads(count, pool)
        for count in map(int, options.threads.split(","))
        for pool in ((False, True) if count > 1 else (False,))
    ]
    rows = []
    for name in NAMES:
        for backward in (False, True):
            for busy in BUSY:
                found = measure(name, backward, busy, threads, options.calls)
                print_rows(found)
                rows += found
    content = {"machine": machine.facts(), "waiting": waiting_policies(), "rows": rows}
    with files.replacing(options.json) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode("ascii"))


if __name__ == "__main__":
    main()
