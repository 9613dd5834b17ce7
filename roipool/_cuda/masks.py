"""Launches of the kernels that paste masks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from roipool._cuda.arguments import FEATURE_STORAGE, STORAGE
from roipool._dtypes import dtype_name
from roipool._masks.request import Pasting

FILE = "cuda/paste.cu"
THREADS = 256
SHARED_BYTES = 8 * THREADS  # a sum of each
MOST_BLOCKS = 2**16
RULES = ("faded", "cut", "resized")  # in the order of kernels/mask_axis.h


class PasteCall(NamedTuple):
    """The structure of kernels/cuda/paste.cu, field by field."""

    masks: int
    mask_rows: int
    mask_columns: int
    rows: int
    columns: int
    first_row: int
    first_column: int
    frame: int
    rule: int
    threshold: float
    factor: float


_TYPE = np.dtype(
    [
        *((name, np.int64) for name in PasteCall._fields[:-2]),
        *((name, np.float64) for name in PasteCall._fields[-2:]),
    ]
)
_PLAIN = np.dtype((np.void, _TYPE.itemsize))  # CuPy asks NumPy to describe fields: 50 us


@lru_cache(maxsize=256)
def argument(shape: tuple[int, ...], pasting: Pasting) -> np.ndarray[Any, Any]:
    """Return what kernels take beside arrays, for masks of a shape."""
    masks, *_, rows, columns = shape
    rule, threshold = RULES.index(pasting.rule), pasting.threshold or 0.0
    sizes = (masks, rows, columns, *pasting.size, *pasting.origin, pasting.frame, rule)
    return np.array([(*sizes, threshold, pasting.factor)], _TYPE).view(_PLAIN)


@cache
def defines(cells: str, result: str) -> dict[str, str | int]:
    """Return the macros of a text, for the types of masks and of what is written."""
    storage = STORAGE.get(cells, "float")
    pasted = {"bool": "Bit", "uint8": "unsigned char"}.get(result) or STORAGE[result]
    found: dict[str, str | int] = {"storage": storage, "pasted": pasted}
    return {**found, "feature_storage": FEATURE_STORAGE[cells]} if cells == "uint8" else found


def name_of(array: Any) -> str:
    """Return the name of an array's dtype."""
    return dtype_name(array.dtype)


def blocks(count: int) -> tuple[int]:
    """Return a grid for a number of tasks, of which blocks take several where there are many."""
    return (max(1, min(count, MOST_BLOCKS)),)


def blocks_of_threads(count: int) -> tuple[int]:
    """Return a grid for a number of tasks of a thread each."""
    return blocks(-(-count // THREADS))


def lines(shape: Sequence[int], pasting: Pasting) -> tuple[int]:
    """Return a grid for rows of pixels."""
    return blocks(shape[0] * pasting.size[0])
