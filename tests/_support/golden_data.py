"""Goldens: inputs, and the answers of released versions of other systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roipool.verification.released import Case, cases
from roipool.verification.tolerance import Array

__all__ = ["FOLDER", "Array", "Case", "goldens"]

FOLDER = Path(__file__).parents[1] / "data" / "goldens"


def goldens(system: str, name: str) -> Iterator[Case]:
    """Yield the cases of `system` with an answer `name`, at least one."""
    found = [case for case in cases(system, FOLDER) if name in case.answers]
    if not found:
        raise KeyError(f"no case of {system} holds {name}")
    yield from found
