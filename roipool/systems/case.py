"""A case: everything that one call depends on, and the memory layouts of its arrays."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roipool._dtypes import INTEGERS, POOLED_DTYPES

Array: TypeAlias = NDArray[Any]


def channel_group(options: Mapping[str, Any]) -> int:
    """Return how many channels belong together: maps have a multiple of this number."""
    return int(options.get("num_orientations", 1))


@dataclass(frozen=True, eq=False)
class Case:
    """A call of one operation, forward and backward."""

    operation: str  # a key of `roipool.systems.SYSTEMS`
    # Features and gradient of the output, shapes (N, C, H, W) and (K, C, rows, columns), with
    # values that their types represent exactly.
    maps: Array
    grad: Array
    # Shape (K, 5): image, x1, y1, x2, y2 in image pixels. Rotated operations may have shape (K, 6):
    # image, centre x, centre y, width, height, angle. Operations on volumes may have shape (K, 7):
    # image, x1, y1, z1, x2, y2, z2.
    rois: Array
    dtype: str = "float32"  # type of the maps; of bytes, the output and its gradient are float32
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the operation
    layout: str = "NCHW"  # layout of the arrays passed, one of `LAYOUTS`
    form: str = "table"  # form of the boxes, one of `FORMS`
    # Keys of `STORAGES`: memory layout of the maps and gradients, and of the array passed as `out`.
    # "new" for `out` passes none.
    storage: str = "plain"
    out: str = "new"
    threads: int = 1  # number of threads
    large: bool = False  # whether the call is too large for the oracle
    variation: int = 0  # seed of the choices that a front end's call makes for itself
    # Among how many planes the rows of the maps, and those of the bins, are divided if they are
    # volumes; by default this follows from their number.
    planes: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Number of bins: rows, columns."""
        rows, columns = self.grad.shape[2:]
        return rows, columns

    @property
    def pooled_dtype(self) -> str:
        """Type of the output and its gradient."""
        return pooled_dtype(self.dtype)

    @property
    def images(self) -> NDArray[np.int64]:
        """The image of each box."""
        return self.rois[:, 0].astype(np.int64)

    @property
    def scale(self) -> float | tuple[float, float]:
        """The scale of maps or, where an option gives their ratio, those of rows and columns."""
        scale, ratio = (self.options.get(name, 1.0) for name in ("spatial_scale", "scale_ratio"))
        return scale if ratio == 1 else (ratio * scale, scale)

    @property
    def channel_group(self) -> int:
        """How many channels belong together: see `channel_group`."""
        return channel_group(self.options)

    @property
    def corners(self) -> Array:
        """Boxes as image, x1, y1, x2, y2; rotated boxes as if their angle were 0."""
        if self.rois.shape[1] == 5:
            return self.rois
        centres, half = self.rois[:, 1:3], self.rois[:, 3:5] / 2
        with np.errstate(invalid="ignore"):
            return np.hstack([self.rois[:, :1], centres - half, centres + half])

    @property
    def real(self) -> type[np.floating[Any]]:
        """Type of coordinates and sums."""
        return np.float64 if self.dtype == "float64" else np.float32


def channels_of_maps(case: Case, pooled: slice | Array) -> Array:
    """Return the channels of the maps that some channels of pooled values come from."""
    count = case.grad.shape[1]
    every = np.arange(case.maps.shape[1]).reshape(count, -1) if count else np.empty((0, 1), int)
    return every[pooled].ravel()


def with_channels(case: Case, pooled: slice | Array) -> Case:
    """Return a case with some of its channels of pooled values."""
    maps = case.maps[:, channels_of_maps(case, pooled)]
    return replace(case, maps=maps, grad=case.grad[:, pooled])


class Storage(NamedTuple):
    """A memory layout: a function that stores an array that way, and its Python source."""

    store: Callable[[Array], Array]
    text: str


def _unaligned(array: Array) -> Array:
    return np.frombuffer(b"0" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)


STORAGES = {
    "plain": Storage(np.ascontiguousarray, "{}"),
    "strided": Storage(lambda a: np.repeat(a, 2, -1)[..., ::2], "np.repeat({}, 2, -1)[..., ::2]"),
    "reversed": Storage(lambda a: a[::-1].copy()[::-1], "{}[::-1].copy()[::-1]"),
    "Fortran": Storage(np.asfortranarray, "np.asfortranarray({})"),
    "swapped": Storage(
        lambda a: a.astype(a.dtype.newbyteorder()),
        "(lambda a: a.astype(a.dtype.newbyteorder()))({})",
    ),
    "read-only, unaligned": Storage(
        _unaligned,
        "(lambda a: np.frombuffer(b'0' + a.tobytes(), a.dtype, offset=1).reshape(a.shape))({})",
    ),
}
WRITABLE = [name for name in STORAGES if not name.startswith("read-only")]
LAYOUTS = ("NCHW", "NHWC")
FORMS = ("table", "nested lists", "batch indices", "one array per image")


def in_layout(array: Array, layout: str) -> Array:
    """Return an NCHW array in `layout`, contiguous."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1) if layout == "NHWC" else array)


@cache
def dtypes() -> dict[str, np.dtype[Any]]:
    """Return the types of features by name; bfloat16 needs ml_dtypes."""
    known = {name: np.dtype(name) for name in ("float32", "float16", "float64", *INTEGERS)}
    with contextlib.suppress(ModuleNotFoundError):
        known["bfloat16"] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return known


def pooled_dtype(dtype: str) -> str:
    """Return the type of pooled values for features of a type."""
    known = dtypes()[dtype]
    return POOLED_DTYPES.get(known, known).name


def held(numbers: Array, dtype: str) -> Array:
    """Return the numbers of a type nearest to some; of integers, those within their range."""
    kind = dtypes()[dtype]
    if dtype in INTEGERS:
        limits = np.iinfo(kind)
        numbers = np.nan_to_num(numbers).clip(limits.min, limits.max).round()
    with np.errstate(over="ignore"):
        return numbers.astype(kind).astype(np.float64)


def held_by(case: Case, dtype: str) -> Case:
    """Return a case with maps and gradients in another type."""
    case = replace(case, dtype=dtype)
    return replace(case, maps=held(case.maps, dtype), grad=held(case.grad, case.pooled_dtype))
