"""Measures how roipool's time grows with boxes, channels, map size, samples and threads.

Each series varies one parameter and times its steps in turns; the growth of a step is its median
over the first step's. No other library is needed.

    python benchmarks/scaling.py --threads 1,2 --json benchmarks/results/scaling.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness import machine, ours
from harness.workloads import WORKLOADS, Workload, changed, task_of

import roipool
from roipool.cli import files
from roipool.tools.libraries.timing import calls_per_turn, timed

DOUBLINGS = [1, 2, 4, 8, 16, 32]
HEIGHT, WIDTH, STRIDE = 50, 84, 16
BASE = WORKLOADS["fpn-box"]


@dataclass(frozen=True)
class Step:
    """One point of a series."""

    value: str
    workload: Workload
    threads: int


def series(threads: list[int]) -> Iterator[tuple[str, list[Step]]]:
    """Yield the name and steps of each series; all but the last use the most threads."""
    most = threads[-1]

    def steps(varied: list[Any], change: Callable[[Any], dict[str, Any]]) -> list[Step]:
        return [Step(str(value), changed(BASE, **change(value)), most) for value in varied]

    boxes = [250 * factor for factor in DOUBLINGS]
    yield "boxes", steps(boxes, lambda value: {"boxes": value, "channels": 64})
    yield "channels", steps([8 * factor for factor in DOUBLINGS], lambda n: {"channels": n})
    # The boxes stay in place while the map grows to the right and downwards.
    for count in (1, 10):
        yield (
            f"cells of the map, {count} boxes",
            steps(
                [HEIGHT * WIDTH * factor for factor in DOUBLINGS],
                lambda cells, count=count: {
                    "boxes": count,
                    "levels": ((HEIGHT * (cells // (HEIGHT * WIDTH)), WIDTH, STRIDE),),
                },
            ),
        )
    yield "samples per bin and axis", steps([1, 2, 3, 4, 8], lambda n: {"sampling_ratio": n})
    yield "threads", [Step(str(count), BASE, count) for count in threads]


def measure(steps: list[Step], backward: bool, repeat: int) -> list[float]:
    """Return the median seconds of each step, timed in turns."""
    calls = [ours.prepare(task_of(step.workload, "float32", backward)) for step in steps]
    repeats = [1] * len(steps)
    seconds: list[list[float]] = [[] for _ in steps]
    for turn in range(-1, repeat):  # an extra turn to warm up and to estimate the time of a call
        for number, (step, call) in enumerate(zip(steps, calls, strict=True)):
            roipool.set_num_threads(step.threads)
            taken = timed(call, repeats[number])
            if turn < 0:
                repeats[number] = calls_per_turn(taken)
            else:
                seconds[number].append(taken)
    return [statistics.median(rounds) for rounds in seconds]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    files.check_writable(options.json)
    rows = []
    for name, steps in series([int(count) for count in options.threads.split(",")]):
        for backward, operation in enumerate(BASE.operations):
            medians = measure(steps, bool(backward), options.repeat)
            print(f"\n{name}, {operation}")
            for step, median in zip(steps, medians, strict=True):
                print(f"  {step.value:>8} {median * 1e3:10.3f} ms {median / medians[0]:8.2f} x")
                row = {"series": name, "operation": operation, "value": step.value}
                rows.append({**row, "median": median, "growth": median / medians[0]})
    content = {"machine": machine.facts(), "repeat": options.repeat, "rows": rows}
    with files.replacing(options.json) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode("ascii"))


if __name__ == "__main__":
    main()
