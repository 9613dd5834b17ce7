"""Goldens: inputs, and the answers of released versions of other systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from roipool.systems import stored
from roipool.systems.stored import Golden
from roipool.verification.tolerance import Array

__all__ = ["FOLDER", "Array", "Arrays", "Golden", "goldens", "recorded"]

Arrays = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "data" / "goldens"


def goldens(system: str, name: str) -> Iterator[Golden]:
    """Yield the calls of `system` with an answer `name`, at least one."""
    found = [golden for golden in stored.goldens(system, FOLDER) if name in golden.answers]
    if not found:
        raise KeyError(f"no case of {system} holds {name}")
    yield from found


def recorded(name: str) -> Iterator[Arrays]:
    """Yield the inputs and answers of a released program, of goldens in one file."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        every = dict(arrays)
    cases = {int(key.partition("_")[0].removeprefix("case")) for key in every}
    for number in sorted(cases):
        start = f"case{number}_"
        yield {key.removeprefix(start): every[key] for key in every if key.startswith(start)}
