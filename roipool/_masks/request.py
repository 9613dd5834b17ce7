"""`Pasting`, the request of engines for pasted masks, and checks of the arguments of pasting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array, Library
from roipool._dtypes import FLOATS, dtype_name, numpy_dtype
from roipool._errors import shown

Rule: TypeAlias = Literal["faded", "cut", "resized"]
Shape: TypeAlias = tuple[int, ...]

MASK_DTYPES = (*FLOATS, "uint8")  # and bool, whose bytes are read as uint8
BOX_SHAPE = "(K, 4): x1, y1, x2, y2"


class Pasting(NamedTuple):
    """All arguments of pasting besides arrays."""

    size: tuple[int, int]  # rows and columns of the picture, or of the written part of it
    # "faded": bilinear, with cells outside the mask as 0; "cut": the same, but only for pixels in
    # the box; "resized": as a picture is resized to a box of whole pixels.
    rule: Rule = "faded"
    frame: int = 0  # cells of zeros around a resized mask
    origin: tuple[int, int] = (0, 0)  # first row and column of the written part
    threshold: float | None = None  # in a bool result, values from this one on are True
    factor: float = 1.0  # values are multiplied by it before they are cut to bytes
    # Whether the result holds zeros already, so that an engine may write only the pixels of masks.
    on_zeros: bool = False

    def text(self) -> str:
        """Return all fields as text, for programs without Python objects.

        The size is left out, because a program may have symbols for it.
        """
        return json.dumps(self[1:])

    @staticmethod
    def of_text(text: str, size: Sequence[int]) -> Pasting:
        """Return the request that `text` wrote, with a size."""
        rows, columns = size
        rule, frame, origin, *others = json.loads(text)
        return Pasting((rows, columns), rule, frame, tuple(origin), *others)


def masks(name: str, array: Any, dtypes: tuple[str, ...] = MASK_DTYPES) -> tuple[Array, Shape]:
    """Return masks as (K, h, w), and the axes of channels that they had: () or (1,)."""
    dimensions = getattr(array, "ndim", 3)
    if dimensions not in (3, 4):
        shape = tuple(array.shape)
        raise ValueError(f"{name} must have shape (K, h, w) or (K, 1, h, w), got {shape}")
    checked = check.float_array(name, array, dtypes, dimensions)
    shape = flat_shape(name, tuple(checked.shape))
    return checked.reshape(shape), tuple(checked.shape[1:-2])


def flat_shape(name: str, sizes: Shape) -> tuple[int, int, int]:
    """Return the shape of masks as (K, h, w); sizes may be symbols of a traced program."""
    if len(sizes) not in (3, 4) or sizes[1:-2] not in ((), (1,)):
        raise ValueError(f"{name} must have shape (K, h, w) or (K, 1, h, w), got {shown(sizes)}")
    if any(type(size) is int and size > check.MAX_AXIS for size in sizes[-2:]):
        raise ValueError(
            f"{name}: height and width must be at most {check.MAX_AXIS}, got {shown(sizes)}"
        )
    return sizes[0], sizes[-2], sizes[-1]


def boxes(name: str, values: Any, count: int, dtype: np.dtype[Any]) -> Array:
    """Return checked boxes for the engines, one for each mask."""
    table = _boxes.box_table(name, values, (4,), BOX_SHAPE)
    if table.shape[0] != count:
        raise ValueError(f"{name} must hold one box per mask: got {table.shape[0]} for {count}")
    return _boxes.coordinates(table, dtype)


def pasted_dtype(
    library: Library, array: Array, dtype: Any, threshold: float | None
) -> np.dtype[Any]:
    """Return the checked dtype of pasted masks: bool with a threshold, else a float or uint8."""
    own = dtype_name(library.dtype(array))
    floats = "float32" if own == "uint8" else own
    allowed = ("bool",) if threshold is not None else (floats, "uint8")
    if dtype is None:
        return numpy_dtype(allowed[0])
    name = check.name_of_dtype(dtype)
    if name not in allowed:
        reason = "with a threshold" if threshold is not None else f"for {own} masks"
        others = "; for bool, give a threshold" if name == "bool" else ""
        raise TypeError(
            f"dtype must be None or {' or '.join(allowed)} {reason}, got {shown(dtype)}{others}"
        )
    return numpy_dtype(name)


def factor_of(library: Library, array: Array, dtype: np.dtype[Any]) -> float:
    """Return `Pasting.factor`: 255 for a uint8 result of masks with values from 0 to 1, else 1."""
    is_scaled = dtype_name(dtype) == "uint8" and dtype_name(library.dtype(array)) != "uint8"
    return 255.0 if is_scaled else 1.0
