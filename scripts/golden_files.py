"""Goldens as the tests read them: cases with their own inputs, in one file of each system."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def folder_of_arguments(description: str | None) -> Path:
    """Return the only argument of a program: the folder to write to."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    return folder


def write(folder: Path, name: str, cases: Iterable[Mapping[str, Any]]) -> None:
    """Write the inputs and answers of each case, by their names."""
    arrays = {
        f"case{number}_{key}": value
        for number, case in enumerate(cases)
        for key, value in case.items()
    }
    np.savez_compressed(folder / f"{name}.npz", **arrays)
