"""The argument that every kernel takes besides arrays: a structure, and its layout in memory.

The fields are those of kernels/cuda/call.h, in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from roipool._boxes import DEVICE_INDEX_TYPES

MAX_LEVELS = 64  # kernels take 4 KB of arguments


class AxisCall(NamedTuple):
    """One axis of a call."""

    bins: int
    sampling: int
    capacity: int = 0
    groups: int = 1


class VolumeArguments(NamedTuple):
    """The depth of volumes and the rows of a plane; kernels for maps do not read them."""

    depth: AxisCall = AxisCall(1, 0)
    rows: AxisCall = AxisCall(1, 0)
    planes: int = 1
    plane_rows: int = 0
    depth_scale: float = 1.0
    row_scale: float = 1.0


class Level(NamedTuple):
    """One of the maps that boxes are pooled from; `address` is used if there are several."""

    rows: int
    columns: int
    scale: float
    first_tile: int = 0
    address: int = 0


class CallArguments(NamedTuple):
    """The fields of a call."""

    images: int
    channels: int
    boxes: int
    box_stride: int
    coordinate_stride: int
    image_stride: int
    rows: AxisCall
    columns: AxisCall
    volume: VolumeArguments = VolumeArguments()
    plan_bytes: int = 0
    entries_at: int = 0
    empty_value: float = 0.0
    lowest: float = 0.0
    angle_scale: float = 1.0
    offset_factor: float = 1.0
    tasks: int = 0
    parts: int = 1
    share: int = 0
    pieces: int = 1
    piece_rows: int = 0
    lanes: int = 1
    tile_rows: int = 0
    tile_columns: int = 0
    tiles: int = 0
    crowd: int = 0
    portions: int = 0
    tally_bytes: int = 0
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
        """Number of rows of the highest map."""
        return max(level.rows for level in self.levels)

    @property
    def width(self) -> int:
        """Number of columns of the widest map."""
        return max(level.columns for level in self.levels)


_AXIS_TYPE = np.dtype([(name, np.int64) for name in AxisCall._fields])
_VOLUME_TYPE = np.dtype(
    [
        *((name, _AXIS_TYPE) for name in ("depth", "rows")),
        *((name, np.int64) for name in ("planes", "plane_rows")),
        *((name, np.float64) for name in ("depth_scale", "row_scale")),
    ]
)
LEVEL_TYPE = np.dtype(
    [
        ("address", np.uintp),
        *((name, np.int64) for name in ("rows", "columns", "first_tile")),
        ("scale", np.float64),
    ],
    align=True,
)
_FIELD_TYPES = {
    **dict.fromkeys(("rows", "columns"), _AXIS_TYPE),
    "volume": _VOLUME_TYPE,
    **dict.fromkeys(
        ("empty_value", "lowest", "angle_scale", "offset_factor"), np.dtype(np.float64)
    ),
    **dict.fromkeys(
        ("image_kind", "aligned", "argmax_is_cell", "outside_is_zero", "wide_argmax"),
        np.dtype(np.int32),
    ),
}


@cache
def call_type(levels: int) -> np.dtype[Any]:
    """Return the structure that kernels take for this number of levels."""
    types = {**_FIELD_TYPES, "levels": np.dtype((LEVEL_TYPE, (levels,)))}
    return np.dtype(
        [(name, types.get(name, np.dtype(np.int64))) for name in CallArguments._fields], align=True
    )


# The enumerators of `ImageKind` in kernels/cuda/call.h: types of batch indices.
IMAGE_KINDS = {name: number for number, name in enumerate(DEVICE_INDEX_TYPES)}
# Types of batch indices that are cut to whole numbers.
CUT_IMAGE_KINDS = {"float32": len(IMAGE_KINDS), "float64": len(IMAGE_KINDS) + 1}

STORAGE = {
    "float16": "Float16",
    "bfloat16": "Bfloat16",
    "int16": "Bfloat16",  # the bits of bfloat16, if ml_dtypes is not installed
    "float32": "float",
    "float64": "double",
}
# C++ types of integer features; other features have the type of pooled values.
FEATURE_STORAGE = {
    "uint8": "unsigned char",
    "int8": "signed char",
    "uint16": "unsigned short",
    "int16": "short",
}
INTEGERS = ("int", "wide_int")  # int32, int64

_pack_integer = struct.Struct("=q").pack_into
_pack_address = struct.Struct("=Q").pack_into


class Argument:
    """The structure that kernels take, for calls that differ only in their number of boxes.

    Parameters
    ----------
    call : CallArguments
        One of these calls.
    tasks_of_box : int
        Number of tasks of each box; 0 if tasks do not belong to boxes.
    """

    def __init__(self, call: CallArguments, tasks_of_box: int) -> None:
        structure = call_type(len(call.levels))
        offsets = {name: structure.fields[name][1] for name in CallArguments._fields}  # type: ignore[index]
        names = LEVEL_TYPE.names or ()
        levels = [tuple(getattr(level, name) for name in names) for level in call.levels]
        self._bytes = np.array((*call[:-1], levels), structure).tobytes()
        self._offsets = offsets
        # Offset of the address of each level.
        self.addresses_at = range(offsets["levels"], len(self._bytes), LEVEL_TYPE.itemsize)
        self._tasks_of_box = tasks_of_box
        # CuPy asks NumPy to describe an argument, which takes 50 us if the type has fields.
        self._type = np.dtype((np.void, len(self._bytes)))
        self._last = (-1, np.empty(0, self._type))

    @property
    def structure(self) -> bytes:
        """The structure, for the number of boxes of the call."""
        return self._bytes

    @property
    def places(self) -> tuple[int, ...]:
        """Offsets of the fields that a launch may set: see `CallLaunch`."""
        names = ("images", "boxes", "tasks", "tiles", "portions", "tally_bytes", "levels")
        return tuple(self._offsets[name] for name in names)

    def for_boxes(self, boxes: int, maps: Sequence[int] = ()) -> np.ndarray[Any, Any]:
        """Return an array of one structure; `maps` are the addresses of the maps of several levels.

        Calls with equal numbers of boxes share the array, because a launch copies it at once.
        """
        last_boxes, last = self._last
        if boxes == last_boxes and not maps:
            return last
        structure = self._structure(boxes, maps)
        if not maps:
            self._last = (boxes, structure)
        return structure

    def _structure(self, boxes: int, maps: Sequence[int]) -> np.ndarray[Any, Any]:
        structure = bytearray(self._bytes)
        _pack_integer(structure, self._offsets["boxes"], boxes)
        if self._tasks_of_box:
            _pack_integer(structure, self._offsets["tasks"], boxes * self._tasks_of_box)
        if maps:
            for place, address in zip(self.addresses_at, maps, strict=True):
                _pack_address(structure, place, address)
        return np.frombuffer(structure, self._type)
