"""Count the instructions of whole workloads, and the bytes that they move between caches.

These numbers show what limits a workload: beside the compulsory bytes are the bytes that miss a
first-level cache of 48 KiB and a second-level cache of 2 MiB, as simulated by callgrind: with AVX2,
on one thread, 64 bytes for each miss. Needs valgrind, and takes several minutes.

    python benchmarks/traffic.py --json benchmarks/results/traffic.json
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from harness import floor, machine
from harness.workloads import WORKLOADS, task_of
from instructions import call_between_marks, counted

from roipool.cli import files

CASES = [
    (name, backward)
    for name in ("fpn-box", "fpn-mask", "vgg16-pool", "crop-and-resize")
    for backward in (False, True)
]
CACHES = ("--cache-sim=yes", "--D1=49152,12,64", "--LL=2097152,16,64")
LINE = 64


def work() -> None:
    """Run every case; called under valgrind."""
    call_between_marks(task_of(WORKLOADS[name], "float32", backward) for name, backward in CASES)


def row(name: str, backward: bool, found: dict[str, int]) -> dict[str, Any]:
    """Describe one case."""
    workload = WORKLOADS[name]
    return {
        "workload": name,
        "code": workload.code,
        "operation": workload.operations[backward],
        "instructions": found["Ir"],
        "compulsory_bytes": floor.compulsory_bytes(task_of(workload, "float32", backward)),
        "bytes_past_first_cache": LINE * (found["D1mr"] + found["D1mw"]),
        "bytes_past_second_cache": LINE * (found["DLmr"] + found["DLmw"]),
    }


def main() -> None:
    """Count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    if options.json is None:
        parser.error("--json must name a file")
    files.check_writable(options.json)
    events = counted(__file__, len(CASES), *CACHES)
    rows = [row(*case, found) for case, found in zip(CASES, events, strict=True)]
    for found in rows:
        print(json.dumps(found))
    content = {"machine": machine.facts(), "rows": rows}
    with files.replacing(options.json) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode("ascii"))


if __name__ == "__main__":
    main()
