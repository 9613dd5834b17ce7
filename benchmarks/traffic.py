"""Count the instructions of whole workloads, and the bytes that they move between caches.

These numbers show what limits a workload: beside the compulsory bytes are the bytes that miss a
first-level cache of 48 KiB and a second-level cache of 2 MiB, as simulated by callgrind: with AVX2,
on one thread, 64 bytes for each miss. Needs valgrind, and takes several minutes.

    python benchmarks/traffic.py --json benchmarks/results/traffic.json
    python benchmarks/traffic.py --parts --json benchmarks/results/parts.json

With --parts: the bytes that miss a second-level cache of 512 KiB, as AMD's processors have, if
calls suppose 2 MiB for the parts of maps that they work on at a time, and if they suppose 512 KiB.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from harness import floor, machine, ours
from harness.workloads import WORKLOADS, changed, task_of
from instructions import between_marks, call_between_marks, counted

from roipool import _cpu
from roipool.cli import files

CASES = [
    (name, backward)
    for name in ("fpn-box", "fpn-mask", "vgg16-pool", "crop-and-resize")
    for backward in (False, True)
]
CACHES = ("--cache-sim=yes", "--D1=49152,12,64", "--LL=2097152,16,64")
LINE = 64

# Of --parts: name, changes to the workload, type, backward.
PARTS: list[tuple[str, dict[str, Any], str, bool]] = [
    ("fpn-box", {}, "float32", False),
    ("fpn-mask", {}, "float32", False),
    ("fpn-mask", {}, "float32", True),
    ("vgg16-pool", {}, "float32", True),
    ("crop-and-resize-mask", {}, "float32", False),
    ("crop-and-resize-mask", {}, "float32", True),
    ("fpn-mask", {"layout": "NHWC"}, "float16", True),
    ("fpn-mask", {"layout": "NHWC"}, "float32", True),
    ("stress-max-align", {"boxes": 100}, "float32", True),
]
SUPPOSED = {"2 MiB": 2**21, "512 KiB": 2**19}
SMALL_CACHES = ("--cache-sim=yes", "--D1=32768,8,64", "--LL=524288,8,64")


def work() -> None:
    """Run every case; called under valgrind."""
    call_between_marks(task_of(WORKLOADS[name], "float32", backward) for name, backward in CASES)


def work_of_parts() -> None:
    """Run every case of --parts with each supposed size; called under valgrind."""
    for name, changes, dtype, backward in PARTS:
        call = ours.prepare(task_of(changed(WORKLOADS[name], **changes), dtype, backward))
        for size in SUPPOSED.values():
            _cpu.suppose_core_cache(size)
            call()
            between_marks(call)


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


def rows_of_parts() -> list[dict[str, Any]]:
    """Count the cases of --parts."""
    events = iter(
        counted(__file__, len(PARTS) * len(SUPPOSED), *SMALL_CACHES, work="--work-of-parts")
    )
    rows = []
    for name, changes, dtype, backward in PARTS:
        workload = changed(WORKLOADS[name], **changes)
        found = {supposed: next(events) for supposed in SUPPOSED}
        rows.append(
            {
                "workload": name,
                "code": workload.code,
                "operation": workload.operations[backward],
                "boxes": workload.boxes,
                "layout": workload.layout,
                "dtype": dtype,
                "instructions": {supposed: each["Ir"] for supposed, each in found.items()},
                "bytes_past_second_cache": {
                    supposed: LINE * (each["DLmr"] + each["DLmw"])
                    for supposed, each in found.items()
                },
            }
        )
    return rows


def main() -> None:
    """Count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json")
    parser.add_argument("--parts", action="store_true", help="with a second-level cache of 512 KiB")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work-of-parts", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work or options.work_of_parts:
        (work if options.work else work_of_parts)()
        return
    if options.json is None:
        parser.error("--json must name a file")
    files.check_writable(options.json)
    if options.parts:
        rows = rows_of_parts()
    else:
        events = counted(__file__, len(CASES), *CACHES)
        rows = [row(*case, found) for case, found in zip(CASES, events, strict=True)]
    for found in rows:
        print(json.dumps(found))
    content = {"machine": machine.facts(), "rows": rows}
    with files.replacing(options.json) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode("ascii"))


if __name__ == "__main__":
    main()
