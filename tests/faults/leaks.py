"""Many small calls, and how much memory and how many objects they leave.

Prints both after each tenth of the calls; returns 1 if the second half left more than a little.
"""

from __future__ import annotations

import argparse
import gc
import platform
import resource
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from engines.test_robustness import calls

TURNS = 10
MAX_BLOCKS, MAX_BYTES = 200, 2**20


def left() -> tuple[int, int]:
    """Return how many blocks of Python's there are, and the bytes of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return sys.getallocatedblocks(), pages * resource.getpagesize()


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--calls", type=int, default=100_000, help="how many (default 100000)")
    wanted = parser.parse_args().calls
    functions = list(calls().values())
    found = []
    for turn in range(TURNS):
        for number in range(wanted // TURNS):
            functions[number % len(functions)]()
        found.append(left())
        print(
            f"{(turn + 1) * wanted // TURNS:>9,} calls: {found[-1][0]:,} blocks, "
            f"{found[-1][1] / 2**20:.2f} MiB",
            flush=True,
        )
    blocks, size = (found[-1][i] - found[TURNS // 2 - 1][i] for i in (0, 1))
    print(
        f"the second half left {blocks} blocks and {size // 1024} KiB; {platform.system()} "
        f"{platform.machine()}, {date.today()}"
    )
    return int(blocks > MAX_BLOCKS or size > MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
