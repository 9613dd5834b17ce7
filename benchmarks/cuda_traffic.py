"""Counts the instructions, traffic and conflicts of every CUDA kernel by executing NVRTC's PTX.

Writes ``benchmarks/cuda_traffic.md``; needs ``pip install -e . ml_dtypes --group cuda`` and a C++
compiler, but no GPU. Results are compared with NumPy's; a race, a collective that some lanes miss,
or a bad address is an error. docs/gpu-model.md explains the counts.

    python benchmarks/cuda_traffic.py          # write the table
    python benchmarks/cuda_traffic.py --check  # exit status 1 if it has changed
    python benchmarks/cuda_traffic.py --case "fpn-box*backward"  # print some rows
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from _support import emulator, nvrtc, simt
from cuda_model.cases import Case, cases
from harness.pages import write_or_compare

from roipool._cuda.source import OPTIONS

RESULT = Path(__file__).with_suffix(".md")
PAGE = """\
# What the CUDA kernels do

Counted, not measured: written by `python benchmarks/cuda_traffic.py`, which executes the PTX of
NVRTC {version} (`compute_{architecture}`, `{options} -ftz=true`) of every launch of a call; see
[docs/gpu-model.md](../docs/gpu-model.md). No launch had a race, a collective that some lanes miss,
or an access out of bounds or misaligned, and every result is that of NumPy arrays. Workloads are
those of the benchmark harness with fewer boxes and channels; *yardstick* is the plain kernel: a
thread for each pooled value, atomics in the backward (`cuda_model/yardsticks.cu`).

- **instructions**: PTX instructions of warps, in thousands; **lanes**: of 32, how many take part.
- **sectors**: of 32 bytes, per request of a warp for global memory.
- **L2 MB**: sectors that a block loads, each once, and those that it stores or adds to;
  **least MB**: sectors that the launch touches at all, each once; **atomics**: their sectors, in
  thousands.
- **conflicts**: turns in which the banks of shared memory serve a request, over those without
  conflicts (-: no requests). **barriers**: of a block, on average.

{table}
"""
YARDSTICK_TOLERANCE = 2.0**-11  # the yardstick rounds positions of samples differently
COLUMNS = [
    "kernel",
    "launches",
    "blocks",
    "instructions",
    "lanes",
    "sectors",
    "L2 MB",
    "least MB",
    "atomics",
    "conflicts",
    "barriers",
]


def launches_of(call: Callable[[Any], list[Any]], argument: Any) -> tuple[list[Any], Any]:
    """Run a call on the simulator; return its results and launches."""
    with simt.recorded() as records:
        found = call(argument)
    return [array.get() for array in found], records


def rows(case: Case, cupy: Any) -> Iterator[list[str]]:
    """Run a case and yield its rows; ValueError if a result is wrong."""
    expected = case.call(lambda array: array)
    found, records = launches_of(case.call, cupy.asarray)
    check(case.name, found, expected)
    for name in dict.fromkeys(record.kernel for record in records):
        yield row(name, [record for record in records if record.kernel == name])
    if case.yardstick is not None:
        found, records = launches_of(case.yardstick, cupy)
        check(f"{case.name}, yardstick", found, expected, YARDSTICK_TOLERANCE)
        yield row("*yardstick*", records)


def check(name: str, found: list[Any], expected: list[Any], allowed: float = 0) -> None:
    """Compare results with NumPy's."""
    for one, other in zip(found, expected, strict=True):
        roundings = max(allowed, 2.0 ** (-7 if one.dtype.itemsize == 2 else -17))
        largest = float(np.abs(other.astype(np.float64)).max(initial=1))
        error = np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0)
        if not error <= roundings * largest:
            raise ValueError(f"{name}: an error of {error}; the largest value is {largest}")


def row(name: str, records: list[simt.Record]) -> list[str]:
    """Return the row of a kernel's launches."""
    total = {
        key: sum(record.counts.as_dict()[key] for record in records)
        for key in records[0].counts.as_dict()
    }
    blocks = sum(int(np.prod(record.grid)) for record in records)
    warps = {-(-int(np.prod(record.threads)) // 32) for record in records}
    requests = sum(total[f"{kind}_requests"] for kind in ("load", "store", "atomic"))
    sectors = sum(total[f"{kind}_sectors"] for kind in ("load", "store", "atomic"))
    moved = total["block_load_sectors"] + total["store_sectors"] + total["atomic_sectors"]
    least = total["unique_load_sectors"] + total["unique_store_sectors"]
    numbers = [
        f"{total['warp_instructions'] / 1e3:,.0f}",
        f"{total['thread_instructions'] / total['warp_instructions']:.1f}",
        f"{sectors / max(requests, 1):.1f}",
        f"{moved * 32 / 1e6:.1f}",
        f"{least * 32 / 1e6:.1f}",
        f"{total['atomic_sectors'] / 1e3:,.0f}",
        ratio(total["shared_wavefronts"], total["shared_least_wavefronts"]),
        f"{total['barriers'] / blocks / max(warps):.1f}",
    ]
    return [name, str(len(records)), f"{blocks:,}", *numbers]


def ratio(number: int, least: int) -> str:
    """Format a number as a multiple of the least."""
    return f"{number / least:.2f}" if least else "-"


def table(pattern: str) -> str:
    """Return the tables of the cases whose names match."""
    parts = []
    with emulator.active() as cupy, simt.simulated():
        for case in cases():
            if not fnmatch.fnmatch(case.name, pattern):
                continue
            lines = [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *rows(case, cupy)]
            text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            parts.append(f"## {case.name}\n\n{text}")
            print(case.name, file=sys.stderr)
    return "\n\n".join(parts)


def main() -> int:
    """Write the page, or compare it with the current counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare, and exit 1 on a difference")
    parser.add_argument("--case", metavar="PATTERN", help="print the cases with matching names")
    arguments = parser.parse_args()
    if arguments.case:
        print(table(arguments.case))
        return 0
    found = PAGE.format(
        version=nvrtc.version(),
        options=" ".join(OPTIONS),
        table=table("*"),
        architecture=simt.ARCHITECTURE,
    )
    return write_or_compare(RESULT, found, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
