"""Numbers, names and other options: each checked, and returned in one type."""

from __future__ import annotations

import math
import operator
from typing import Any, TypeVar

import numpy as np

from roipool._dtypes import dtype_name
from roipool._errors import shown
from roipool._layout import LAYOUTS, VOLUME_LAYOUTS, Layout, VolumeLayout

Choice = TypeVar("Choice", bound=str)
# Cell numbers along one axis, and bins, are 32-bit; offsets and planes are not.
MAX_AXIS = 2**31 - 1
# Elements: beyond this, sizes in bytes overflow 64 bits.
MAX_ELEMENTS = 2**59
# A bin's samples are numbered in 32 bits: 2^15 by 2^15 of them.
MAX_SAMPLING_RATIO = 2**15


def layout(value: Any) -> Layout:
    """Return the layout if it is one."""
    if isinstance(value, str) and value == "NCHW":  # the usual one, in half the time
        return "NCHW"
    return choice("layout", value, LAYOUTS)


def volume_layout(value: Any) -> VolumeLayout:
    """Return the layout of volumes if it is one."""
    return choice("layout", value, VOLUME_LAYOUTS)


def numbered(name: str, values: Any) -> dict[str, Any]:
    """Return the items of a list or tuple by their names."""
    return {f"{name}[{i}]": one for i, one in enumerate(sequence(name, values))}


def sequence(name: str, values: Any) -> list[Any]:
    """Return the items of a list or tuple; an array is no sequence of maps or shapes."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name} must be a list or tuple, got {type(values).__name__}")
    return list(values)


def scales(name: str, values: Any, maps: int) -> tuple[float, ...]:
    """Return the scale of each of several maps."""
    numbers = sequence(name, values)
    if len(numbers) != maps:
        raise ValueError(f"{name} must hold one number per map: got {len(numbers)} for {maps}")
    return tuple(real_number(f"{name}[{i}]", one) for i, one in enumerate(numbers))


def whole_number(name: str, value: Any) -> int:
    """Return an int."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {shown(value)}") from None


def size_pair(name: str, value: Any) -> tuple[int, int]:
    """Return (rows, columns), each at least 1, from an int or a pair."""
    rows, columns = (value, value) if type(value) is int else _pair(name, value)
    if not (1 <= rows <= MAX_AXIS and 1 <= columns <= MAX_AXIS):
        raise ValueError(f"{name} must be from 1 to {MAX_AXIS}, got {shown(value)}")
    return rows, columns


def sampling_pair(name: str, value: Any, least: int = 0) -> tuple[int, int]:
    """Return samples per bin (vertical, horizontal), or groups of bins; 0: as many as needed."""
    rows, columns = (value, value) if type(value) is int else _pair(name, value)
    if not (least <= rows <= MAX_SAMPLING_RATIO and least <= columns <= MAX_SAMPLING_RATIO):
        zero = " (as many as bins)" if name in ("group_size", "part_size") else " (adaptive)"
        lowest = str(least) if least else f"0{zero}"
        raise ValueError(
            f"{name} must be from {lowest} to {MAX_SAMPLING_RATIO}, got {shown(value)}"
        )
    return rows, columns


def _pair(name: str, value: Any) -> tuple[int, int]:
    items = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(items) != 2:
        raise ValueError(f"{name} must be an int or a pair of ints, got {shown(value)}")
    first, second = items
    if type(first) is int and type(second) is int:  # the usual ones, at once
        return first, second
    try:
        if isinstance(first, bool) or isinstance(second, bool):
            raise TypeError
        return operator.index(first), operator.index(second)
    except TypeError:
        raise TypeError(f"{name} must be an int or a pair of ints, got {shown(value)}") from None


def size_triple(name: str, value: Any) -> tuple[int, int, int]:
    """Return (depth, rows, columns), each at least 1, from an int or three."""
    depth, rows, columns = (whole_number(name, each) for each in _triple(name, value, "ints"))
    if not all(1 <= each <= MAX_AXIS for each in (depth * rows, depth, rows, columns)):
        raise ValueError(
            f"{name} must be from 1 to {MAX_AXIS}, and so must depth times rows, got {shown(value)}"
        )
    return depth, rows, columns


def sampling_triple(name: str, value: Any) -> tuple[int, int, int]:
    """Return samples per bin (depth, vertical, horizontal); 0: adaptive."""
    depth, rows, columns = (whole_number(name, each) for each in _triple(name, value, "ints"))
    if not all(0 <= each <= MAX_SAMPLING_RATIO for each in (depth, rows, columns)):
        raise ValueError(
            f"{name} must be from 0 (adaptive) to {MAX_SAMPLING_RATIO}, got {shown(value)}"
        )
    return depth, rows, columns


def scale_triple(name: str, value: Any) -> tuple[float, float, float]:
    """Return the scales of (depth, rows, columns) from a number or three."""
    depth, rows, columns = (real_number(name, each) for each in _triple(name, value, "numbers"))
    return depth, rows, columns


def _triple(name: str, value: Any, kind: str) -> tuple[Any, Any, Any]:
    if not isinstance(value, (tuple, list)):
        return value, value, value
    if len(value) != 3:
        raise ValueError(
            f"{name} must be one or three {kind}, (depth, rows, columns), got {shown(value)}"
        )
    first, second, third = value
    return first, second, third


def real_number(name: str, value: Any) -> float:
    """Return a finite float."""
    number = value if type(value) is float else any_float(name, value)
    if not abs(number) < math.inf:  # torch's compiler cannot trace `math.isfinite`
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def any_float(name: str, value: Any) -> float:
    """Return any real scalar as a float; text, booleans and arrays of several are errors."""
    try:
        scalar = np.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a real number, got {shown(value)}") from None
    numeric = scalar.dtype.kind in "fiu" or dtype_name(scalar.dtype) == "bfloat16"
    if scalar.ndim != 0 or not (numeric or isinstance(value, int)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, got {shown(value)}")
    try:
        number = float(value)  # beyond float32 it becomes infinite there
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None
    return math.nan if math.isnan(number) else number  # one NaN object: cache keys compare equal


def flag(name: str, value: Any) -> bool:
    """Return a bool."""
    if value is True or value is False:
        return value
    if not isinstance(value, np.bool_):
        raise TypeError(f"{name} must be a bool, got {shown(value)}")
    return bool(value)


def choice(name: str, value: Any, allowed: tuple[Choice, ...]) -> Choice:
    """Return `value` if it is one of the allowed strings."""
    if not isinstance(value, str):  # an array compares each of its elements
        raise TypeError(f"{name} must be a str, got {type(value).__name__}")
    if value not in allowed:
        options = " or ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be {options}, got {shown(value)}")
    return value
