"""The argument of every kernel beside its arrays, as the host and the kernels lay it out."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

# The fields are those of kernels/cuda/call.h, in their order.


class AxisCall(NamedTuple):
    """One axis of a call."""

    bins: int
    sampling: int
    capacity: int = 0


class Level(NamedTuple):
    """One of the maps that boxes are on. Only where there are several is `address` used."""

    rows: int
    columns: int
    scale: float
    first_task: int = 0
    address: int = 0


class Call(NamedTuple):
    """One call."""

    images: int
    channels: int
    boxes: int
    box_stride: int
    coordinate_stride: int
    image_stride: int
    rows: AxisCall
    columns: AxisCall
    plan_bytes: int = 0
    entries_at: int = 0
    empty_value: float = 0.0
    lowest: float = 0.0
    angle_scale: float = 1.0
    tasks: int = 0
    parts: int = 1
    share: int = 0
    pieces: int = 1
    piece_rows: int = 0
    lanes: int = 1
    tile_rows: int = 0
    tile_columns: int = 0
    stage: int = 0
    stage_rows: int = 1
    stage_columns: int = 1
    image_kind: int = 0
    aligned: int = 0
    argmax_is_cell: int = 0
    outside_is_zero: int = 0
    wide_argmax: int = 0
    levels: tuple[Level, ...] = ()

    @property
    def height(self) -> int:
        """Cells of the highest map."""
        return max(level.rows for level in self.levels)

    @property
    def width(self) -> int:
        """Cells of the widest map."""
        return max(level.columns for level in self.levels)


_AXIS_TYPE = np.dtype([(name, np.int64) for name in AxisCall._fields])
LEVEL_TYPE = np.dtype(
    [
        ("address", np.uintp),
        *((name, np.int64) for name in ("rows", "columns", "first_task")),
        ("scale", np.float64),
    ],
    align=True,
)
_FIELD_TYPES = {
    **dict.fromkeys(("rows", "columns"), _AXIS_TYPE),
    **dict.fromkeys(("empty_value", "lowest", "angle_scale"), np.dtype(np.float64)),
    **dict.fromkeys(Call._fields[-6:-1], np.dtype(np.int32)),
}


@cache
def call_type(levels: int) -> np.dtype[Any]:
    """Return the structure that kernels of so many levels take."""
    types = {**_FIELD_TYPES, "levels": np.dtype((LEVEL_TYPE, (levels,)))}
    return np.dtype(
        [(name, types.get(name, np.dtype(np.int64))) for name in Call._fields], align=True
    )


IMAGE_KINDS = {"int32": 0, "int64": 1, "float32": 2, "float64": 3}

STORAGE = {
    "float16": "Float16",
    "bfloat16": "Bfloat16",
    "int16": "Bfloat16",  # its bits, where nobody has brought NumPy that type
    "float32": "float",
    "float64": "double",
}
INTEGERS = ("int", "wide_int")  # int32, int64

cached = lru_cache(maxsize=256)


@cached
def argument_of(call: Call) -> np.ndarray[Any, Any]:
    """Return a call as the structure that kernels take."""
    levels = [tuple(getattr(one, name) for name in LEVEL_TYPE.names or ()) for one in call.levels]
    return np.array([(*call[:-1], levels)], call_type(len(levels)))


def copied(argument: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of a structure; NumPy's goes field by field, which takes ten times as long."""
    return argument.view(f"V{argument.nbytes}").copy().view(argument.dtype)
