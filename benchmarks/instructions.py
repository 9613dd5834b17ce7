"""Count the instructions of a few small workloads and compare them with instructions.json.

Even if wall time is noisy, the number of executed instructions shows a change of one percent. Needs
valgrind, which lacks AVX-512: everything runs with AVX2, on one thread. Counts depend on the
compiler and on NumPy, so compare two builds on the same machine.

    python benchmarks/instructions.py             # exit status 1 if a count grew by more than 2 %
    python benchmarks/instructions.py --update    # write the counts
    python benchmarks/instructions.py --if-alike  # compare only counts of the same software

The counts of the first release stay in the file, to reveal slow growth.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

COUNTS = Path(__file__).with_name("instructions.json")
TOLERANCE = 0.02
# Valgrind writes and clears its counters whenever this function of the C library is entered.
MARK = "getppid"
# Name, changes to the workload, type, backward.
CASES = {
    "fpn-box": ("fpn-box", {}, "float32", False),
    "fpn-box backward": ("fpn-box", {}, "float32", True),
    "whole images": ("stress-whole-image", {"sampling_ratio": 2}, "float32", False),
    "fpn-box NHWC": ("fpn-box", {"layout": "NHWC"}, "float32", False),
    "fpn-box float16": ("fpn-box", {}, "float16", False),
    "fpn-box maximum": ("stress-max-align", {}, "float32", False),
    "vgg16-pool": ("vgg16-pool", {}, "float32", False),
    "vgg16-pool backward": ("vgg16-pool", {}, "float32", True),
    "crop-and-resize": ("crop-and-resize", {}, "float32", False),
    "crop-and-resize backward": ("crop-and-resize", {}, "float32", True),
    "tiny-call": ("tiny-call", {"boxes": 1, "channels": 1}, "float32", False),
}
SMALL = {"boxes": 50, "channels": 16}


def work() -> None:
    """Run every case; called under valgrind."""
    from harness.workloads import WORKLOADS, changed, task_of

    call_between_marks(
        task_of(changed(WORKLOADS[name], **SMALL | changes), dtype, backward)
        for name, changes, dtype, backward in CASES.values()
    )


def call_between_marks(tasks: Iterable[Any]) -> None:
    """Call each task once, then again between two marks."""
    from harness import ours

    for task in tasks:
        call = ours.prepare(task)
        call()
        between_marks(call)


def between_marks(call: Callable[[], Any]) -> None:
    """Make a call between two marks."""
    gc.disable()
    os.getppid()
    call()
    os.getppid()


def counted(script: str, cases: int, *options: str, work: str = "--work") -> list[dict[str, int]]:
    """Run ``script --work`` under callgrind; return the events between the marks of each case."""
    texts = profiles(script, *options, work=work)
    if len(texts) != 2 * cases:
        raise RuntimeError(f"valgrind wrote {len(texts)} counts, not {2 * cases}")
    # Events before the first mark and between cases do not count.
    return [events(text) for text in texts[1::2]]


def profiles(script: str, *options: str, work: str = "--work") -> list[str]:
    """Run ``script --work`` under callgrind on one thread; return what it wrote at each mark."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--dump-before={MARK}", *options]
        command += [f"--callgrind-out-file={folder}/part", sys.executable, script, work]
        environment = {
            **os.environ,
            "ROIPOOL_ISA": "avx2",
            "ROIPOOL_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "OMP_THREAD_LIMIT": "1",  # also of calls that are cut for several threads
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
        }
        run = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise RuntimeError(run.stderr)
        parts = sorted(Path(folder).glob("part.*"), key=lambda path: int(path.suffix[1:]))
        return [part.read_text() for part in parts]


def events(text: str) -> dict[str, int]:
    """Parse the names and sums of callgrind's events."""
    names, sums = (
        re.search(pattern, text, re.M)
        for pattern in (r"^events: (.*)$", r"^(?:summary|totals): (.*)$")
    )
    if names is None or sums is None:
        raise RuntimeError("callgrind wrote no events")
    return dict(zip(names[1].split(), map(int, sums[1].split()), strict=False))


def count() -> dict[str, int]:
    """Return the instructions of each case."""
    found = [case["Ir"] for case in counted(__file__, len(CASES))]
    return dict(zip(CASES, found, strict=True))


def about() -> dict[str, str]:
    """Describe the software that the counts depend on."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "compiler": compiler(),
    }


def compiler() -> str:
    """Return the name and version of the compiler that builds roipool here."""
    command = [*shlex.split(os.environ.get("CXX", "c++")), "--version"]
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]


def main() -> int:
    """Count, then compare or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write instructions.json")
    parser.add_argument("--if-alike", action="store_true", help="only if made by the same software")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    kept = json.loads(COUNTS.read_text())
    others = [f"{name} {value}" for name, value in about().items() if kept.get(name) != value]
    if options.if_alike and others:
        print(f"{COUNTS.name} was made with other software than {', '.join(others)}: not compared")
        return 0
    counts = count()
    before, first = kept["counts"], kept["first_release"]
    grown = []
    print(f"{'':<26} {'now':>14} {'before':>8} {'first release':>14}")
    for name, instructions in counts.items():
        changes = [instructions / known[name] - 1 for known in (before, first)]
        print(f"{name:<26} {instructions:>14,} {changes[0]:>+8.2%} {changes[1]:>+14.2%}")
        if changes[0] > TOLERANCE:
            grown.append(name)
    if options.update:
        COUNTS.write_text(json.dumps({**kept, **about(), "counts": counts}, indent=1) + "\n")
        return 0
    if grown:
        print(f"more than {TOLERANCE:.0%} more: {', '.join(grown)}", file=sys.stderr)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
