"""Count the work of calls that are cut into tasks for many threads.

A call that is cut for more threads repeats some work, such as copies of cells that boxes of several
tasks read. These are counts, not times: callgrind executes all tasks on one thread, with AVX2, and
counts instructions. Needs valgrind, and takes a quarter of an hour.

    python benchmarks/many_cores.py            # exit status 1 if work grew by more than 2 %
    python benchmarks/many_cores.py --update   # write results/many_cores.json
    python benchmarks/many_cores.py --only 'fpn-*'  # these workloads alone; the others stay

*Work* is the instructions of a call over those of the same call for one thread. *Speed-up* is what
as many cores would gain at most, if time were instructions and tasks were even.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness import ours
from harness.workloads import WORKLOADS, Workload, changed, task_of
from instructions import TOLERANCE, about, between_marks, events, profiles

import roipool
from roipool.cli.files import replacing

RESULTS = Path(__file__).with_name("results") / "many_cores.json"
THREADS = (1, 2, 16, 64)
# What the process under valgrind needs to know: the folder of the tasks, and the workloads.
FOLDER, ONLY = "MANY_CORES_TASKS", "MANY_CORES_ONLY"
# Workloads, and changes that keep valgrind's time and memory in bounds.
CASES: dict[str, dict[str, Any]] = {
    "fpn-box": {},
    "fpn-box-adaptive": {},
    "fpn-mask": {},
    "vgg16-pool": {},
    "vgg16-pool-train": {},
    "c4": {"boxes": 250},
    "crop-and-resize": {},
    "crop-and-resize-mask": {},
    "rfcn-align": {},
    "stress-max-align": {},
    "stress-many-boxes": {"boxes": 20_000},
}
# Functions of the engine that plan boxes: of those in a row, which call one another, a compiler
# inlines some. And the function that executes a task.
PLANNING = (
    ("count_box", "count_entries_of"),
    ("write_box", "write_entries_of"),
    ("has_right_argmax", "check_argmax_of"),
)
TASK = "run_task_of"
# About the instructions of 4,096 entries of a plan, the fewest that are given to a thread.
LEAST_PLANNING = 400_000


@dataclass
class Work:
    """Instructions of a call: in all, of planning, and of tasks."""

    total: int
    planning: int
    tasks: int

    def time(self, threads: int) -> float:
        """Return the instructions of the busiest of some threads, if their tasks are even."""
        serial = self.total - self.planning - self.tasks
        planning = max(self.planning / threads, min(self.planning, LEAST_PLANNING))
        return serial + planning + self.tasks / threads


def rows() -> Iterator[tuple[str, Workload, bool]]:
    """Yield the name of each row to count, its workload, and whether it is a backward."""
    for name, changes in CASES.items():
        if not fnmatchcase(name, os.environ.get(ONLY, "*")):
            continue
        workload = changed(WORKLOADS[name], **changes)
        for backward, operation in enumerate(workload.operations):
            yield f"{workload.title}, {operation}", workload, bool(backward)


def work() -> None:
    """Run every row; called under valgrind."""
    for _, workload, backward in rows():
        with (Path(os.environ[FOLDER]) / f"{workload.name} {backward}").open("rb") as stream:
            task = pickle.load(stream)
        call = ours.prepare(task)
        call()
        for threads in THREADS:
            roipool.set_num_threads(threads)
            between_marks(call)


def count() -> dict[str, list[Work]]:
    """Return the work of each row for each number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        # Arrays are drawn here, where that takes seconds, and read under valgrind.
        for _, workload, backward in rows():
            with (Path(folder) / f"{workload.name} {backward}").open("wb") as stream:
                pickle.dump(task_of(workload, "float32", backward), stream)
        os.environ[FOLDER] = folder
        calls = map(work_of, profiles(__file__, "--compress-strings=no")[1::2])
        return {name: [next(calls) for _ in THREADS] for name, _, _ in rows()}


def work_of(text: str) -> Work:
    """Return the work of the call that a profile describes."""
    planning = sum(inside(text, inner) or inside(text, outer) for inner, outer in PLANNING)
    return Work(events(text)["Ir"], planning, inside(text, TASK))


def inside(text: str, function: str) -> int:
    """Return the instructions of a profile inside the calls of a function of the engine."""
    calls = rf"^cfn=.*\broipool::{function}[(<].*\ncalls=.*\n\d+ (\d+)$"
    return sum(map(int, re.findall(calls, text, re.M)))


def row(name: str, works: list[Work]) -> dict[str, Any]:
    """Describe one row."""
    alone = works[0].total
    return {
        "name": name,
        "instructions": alone,
        "work": {str(n): round(w.total / alone, 3) for n, w in zip(THREADS, works, strict=True)},
        "speed_up": {
            str(n): round(alone / w.time(n), 1) for n, w in zip(THREADS, works, strict=True)
        },
    }


def grown(found: list[dict[str, Any]], kept: list[dict[str, Any]]) -> list[str]:
    """Return the names of rows that do more work for some number of threads than they did."""
    before = {one["name"]: one["work"] for one in kept}
    return [
        one["name"]
        for one in found
        if any(
            work > before.get(one["name"], {}).get(threads, work) + TOLERANCE
            for threads, work in one["work"].items()
        )
    ]


def main() -> int:
    """Count, then compare or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help=f"write results/{RESULTS.name}")
    parser.add_argument("--only", metavar="PATTERN", help="count workloads with matching names")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    if options.only:
        os.environ[ONLY] = options.only
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    found = [row(name, works) for name, works in count().items()]
    for one in found:
        print(json.dumps(one))
    if options.update:
        counted = {one["name"]: one for one in (*kept, *found)}
        content = {**about(), "rows": [*counted.values()]}
        with replacing(str(RESULTS)) as stream:
            stream.write((json.dumps(content, indent=1) + "\n").encode("ascii"))
        return 0
    names = grown(found, kept)
    if names:
        print(f"more work than before: {'; '.join(names)}", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
