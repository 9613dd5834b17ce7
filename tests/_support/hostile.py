"""Programs that make calls with hostile input, in processes that may crash.

A call depends only on its seed and number. `main` runs any number of calls, counts the outcomes,
and prints the options that repeat a failure.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

CALLS_OF_A_PROCESS = 500
CUT_SHORT = "took too long, ended by a signal"


class Outcome(NamedTuple):
    """The kind of a call's end, and a description if it is a fault."""

    kind: str
    fault: str = ""


class TimeIsUpError(BaseException):
    """Raised by the alarm's handler."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUpError` after some seconds."""

    def stop(*_: Any) -> None:
        raise TimeIsUpError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory(mebibytes: int) -> None:
    """Limit the memory that this process may allocate in addition."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(script: str, about: str, try_call: Callable[[int, int], Outcome]) -> int:
    """Run the program; return 1 if a call failed."""
    arguments = _parser(about).parse_args()
    first, calls = arguments.first, arguments.calls
    if arguments.worker:
        _work(arguments.seed, range(first, first + calls), try_call)
        return 0
    start = time.monotonic()
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    peak = 0
    for begin in range(first, first + calls, CALLS_OF_A_PROCESS):
        count = min(CALLS_OF_A_PROCESS, first + calls - begin)
        report = _report(script, arguments.seed, begin, count)
        kinds.update(report["kinds"])
        faults += report["faults"]
        peak = max(peak, report["peak"])
        for line in report["faults"]:
            print(line, flush=True)
    for kind, count in kinds.most_common():
        print(f"{count:>9,}  {kind}")
    seconds = time.monotonic() - start
    print(
        f"{calls:,} calls from {first} of seed {arguments.seed}, {len(faults)} failures, "
        f"{seconds:.0f} s, at most {peak} MiB; {platform.system()} {platform.machine()}, "
        f"{date.today()}"
    )
    return int(bool(faults))


def _parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, allow_abbrev=False)
    parser.add_argument("--calls", type=int, default=5000, help="number (default 5000)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--worker", action="store_true", help="used by the program itself")
    return parser


def _work(seed: int, numbers: range, try_call: Callable[[int, int], Outcome]) -> None:
    """Make calls in this process, and print their outcomes in the last line."""
    kinds: Counter[str] = Counter()
    faults = []
    for number in numbers:
        print(number, flush=True)
        kind, fault = try_call(seed, number)
        kinds[kind] += 1
        if fault:
            faults.append(f"--seed {seed} --first {number} --calls 1: {fault}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"kinds": kinds, "faults": faults, "peak": peak}), flush=True)


def _report(script: str, seed: int, first: int, count: int) -> dict[str, Any]:
    command = [sys.executable, script, "--worker"]
    command += [f"--seed={seed}", f"--first={first}", f"--calls={count}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and not done.stderr:
        report: dict[str, Any] = json.loads(lines[-1])
        return report
    last = lines[-1] if lines else "none"
    fault = f"--seed {seed} --first {last} --calls 1: status {done.returncode}, {done.stderr}"
    return {"kinds": {"the process ended": 1}, "faults": [fault], "peak": 0}
