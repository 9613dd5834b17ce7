"""Writes a digest of every call's results, to compare releases of roipool call by call.

For this release, and for another release that is installed elsewhere::

    python -m roipool.tools.random_calls.digest --calls 20000 --seed 1 --output new.txt
    OTHER/bin/python -m roipool.tools.random_calls.digest --calls 20000 --seed 1 --output old.txt
    diff old.txt new.txt

The other release must draw the same calls: digests are comparable while the random generator and
the systems that it draws from are the same.

Either both or neither need ml_dtypes: without it there is no bfloat16, and the calls differ.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from roipool.systems.case import Case
from roipool.verification.call import run
from roipool.verification.generate import draw


def digest(case: Case, library: Any) -> str:
    """Return a digest of all results of a case: types, shapes and values; all NaN are equal."""
    content = hashlib.sha256()
    library.set_num_threads(case.threads)
    for name, array in sorted(run(case, library).items()):
        content.update(f"{name} {array.dtype} {array.shape} ".encode())
        known = array if array.dtype.kind in "iu" else np.where(array == array, array, np.nan)
        content.update(np.ascontiguousarray(known.astype(array.dtype)).tobytes())
    return content.hexdigest()


def main() -> None:
    """Write a line for each call: number, operation, type, digest."""
    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    arguments = parser.parse_args()
    library = importlib.import_module("roipool")
    print(f"{library.__version__} in {library.__path__[0]}")
    with arguments.output.open("w") as file:
        for number in range(arguments.calls):
            case = draw(arguments.seed, number)
            try:
                outcome = digest(case, library)
            except Exception as error:  # noqa: BLE001 - one release may reject another's input
                outcome = f"{type(error).__name__}: {' '.join(str(error).split())}"
            file.write(f"{number}\t{case.operation}\t{case.dtype}\t{outcome}\n")


if __name__ == "__main__":
    main()
