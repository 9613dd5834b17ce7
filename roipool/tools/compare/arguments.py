"""Parses the values of ``roipool compare``'s options."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Collection

from roipool.tools.libraries import LIBRARIES

__all__ = [
    "ENGINES",
    "PROGRAMS",
    "map_shape",
    "names_of",
    "output_size",
    "positive",
    "program_python",
    "sampling_ratio",
    "threshold",
    "tolerance",
]

ENGINES = ("cpu", "cuda", "oracle")
PROGRAMS = tuple(LIBRARIES)


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names, all of which must be known."""

    def read(text: str) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}{hint}")
        if not names:
            raise argparse.ArgumentTypeError(f"no name given; choose from {', '.join(known)}")
        return names

    return read


def program_python(text: str) -> tuple[str, str]:
    """Parse a library's name and an interpreter."""
    name, _, python = text.partition("=")
    if name not in PROGRAMS or not python:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=PYTHON with a NAME from {', '.join(PROGRAMS)}"
        )
    return name, python


def map_shape(text: str) -> tuple[int, ...]:
    """Parse channels, rows and columns, or channels, planes, rows and columns."""
    sides = _sizes(text)
    if len(sides) not in (3, 4):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not channels x rows x columns, such as 4x32x48, or channels x planes x "
            "rows x columns, such as 4x16x32x32"
        )
    return tuple(sides)


def output_size(text: str) -> tuple[int, ...]:
    """Parse a side, or rows and columns, or planes, rows and columns."""
    sides = _sizes(text)
    if len(sides) not in (1, 2, 3):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 7, 7x7 or 7x7x7")
    return tuple(sides)


def _sizes(text: str) -> list[int]:
    """Parse positive integers separated by x; return an empty list for other text."""
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return []
    sides = [int(part) for part in parts]
    return sides if min(sides) > 0 else []


def positive(text: str) -> float:
    """Parse a positive number or a fraction such as 1/16."""
    try:
        over, _, under = text.partition("/")
        value = float(over) / float(under or 1)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def tolerance(text: str) -> float:
    """Parse a number of 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def threshold(text: str) -> float:
    """Parse a number above 0, up to 1."""
    value = tolerance(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to 1")
    return value


def sampling_ratio(text: str) -> int:
    """Parse a sampling ratio; systems write 0 or -1 for adaptive, so both are accepted."""
    try:
        return max(int(text), 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
