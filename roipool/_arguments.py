"""The friendly edge: checks what users pass, once, and converts it to what backends expect.

Every message names the argument, what came and what is allowed. Nothing is written to before all
checks of a call have passed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roipool import _cpu
from roipool._arrays import (
    as_array,
    assign,
    contiguous,
    converted,
    is_array,
    joined,
    may_share_memory,
    reversed_pairs,
    values_of,
)
from roipool._layout import (
    Layout,
    Shape4,
    channels,
    dtype_name,
    height_width,
    pooled_shape,
    real_type,
)

Array: TypeAlias = NDArray[Any]
Boxes: TypeAlias = ArrayLike | Sequence[ArrayLike]

FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")
# Cell numbers along one axis, and bins, are 32-bit; offsets and planes are not.
LARGEST_AXIS = 2**31 - 1
# Elements: beyond this, sizes in bytes overflow 64 bits.
LARGEST_ARRAY = 2**59
# A bin's samples are numbered in 32 bits: 2^15 by 2^15 of them.
LARGEST_SAMPLING_RATIO = 2**15
# What image numbers on a GPU may be stored as: its kernels read them where they are.
DEVICE_IMAGE_TYPES = ("int32", "int64", "float32", "float64")


class Regions(NamedTuple):
    """Boxes as backends take them: (K, 4) x1, y1, x2, y2 and one image number each.

    On a GPU both may be columns of one table, and image numbers are not checked.
    """

    boxes: Array
    images: NDArray[np.int64]

    def part(self, boxes: slice) -> Regions:
        """Return some of them."""
        return Regions(self.boxes[boxes], self.images[boxes])


def check_layout(layout: str) -> Layout:
    """Return `layout` if it is one."""
    if not isinstance(layout, str):
        raise TypeError(f"layout must be a str, got {type(layout).__name__}")
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be 'NCHW' or 'NHWC', got {layout!r}")
    return cast(Layout, layout)


def float_array(name: str, array: Any, ndim: int = 4) -> Array:
    """Return a C-contiguous array of a supported type in native byte order."""
    if not is_array(array):
        raise TypeError(f"{name} must be a NumPy or CuPy array, got {type(array).__name__}")
    if dtype_name(array.dtype) not in FLOAT_NAMES:
        raise TypeError(
            f"{name} must have dtype float16, bfloat16, float32 or float64, got {array.dtype}; "
            f"convert it, for example {name}.astype(np.float32)"
        )
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape}")
    return contiguous(array, array.dtype.newbyteorder("="))


def map_shape(name: str, shape: Any, layout: Layout) -> Shape4:
    """Return four non-negative sizes; `name` says whose they are."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise TypeError(f"{name} must be four integers, got {shape!r}") from None
    if len(sizes) != 4:
        raise ValueError(f"{name} must be four integers in {layout} order, got {sizes}")
    if min(sizes) < 0:
        raise ValueError(f"{name} must not have negative sizes, got {sizes}")
    check_axes(name, sizes, layout)
    if math.prod(size for size in sizes if size) > LARGEST_ARRAY:
        raise MemoryError(f"{name} {sizes} is more than any memory holds")
    return sizes


def check_axes(name: str, shape: Sequence[int], layout: Layout) -> None:
    """Check that 32 bits number the cells along each axis of maps."""
    if max(height_width(shape, layout)) > LARGEST_AXIS:
        raise ValueError(f"{name}: height and width must be at most {LARGEST_AXIS}, got {shape}")


def number_array(name: str, values: Any) -> Array:
    """Return real numbers as an array; text, booleans, objects and complex numbers are errors."""
    try:
        array = as_array(values)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array of numbers") from None
    if array.size == 0 and not is_array(values):
        return array.astype(np.float64)
    if array.dtype.kind not in "fiu" and dtype_name(array.dtype) != "bfloat16":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array


def check_images(name: str, values: Any, count: int, images: int, where: str) -> Array:
    """Return image numbers; each must be a whole number in [0, images).

    On a GPU they are as they are, and kernels pass over boxes whose number is not.
    """
    array = number_array(name, values)
    if array.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), got {array.shape}")
    known = values_of(array)
    if known is not None:
        numbers = _checked_images(known, images, where)
        if known is array:
            return numbers
    if dtype_name(array.dtype) in DEVICE_IMAGE_TYPES:
        return array
    return converted(array, np.dtype(np.int64 if array.dtype.kind in "iu" else np.float32))


def _checked_images(array: Array, images: int, where: str) -> Array:
    numbers, row = _cpu.image_numbers(np.ascontiguousarray(array, np.float64), images)
    if row >= 0:
        raise ValueError(
            f"{where.format(row=row)} is {array[row]}, but batch indices must be whole numbers "
            f"from 0 up to, not including, {images}, the number of images"
        )
    return numbers


CORNERS = ("x1", "y1", "x2", "y2")
ROTATED = ("centre x", "centre y", "width", "height", "angle")


def regions(
    rois: Boxes,
    batch_indices: ArrayLike | None,
    images: int,
    dtype: np.dtype[Any],
    numbers_of_box: tuple[str, ...] = CORNERS,
) -> Regions:
    """Return boxes and image numbers from any of the three forms of `rois`."""
    count = len(numbers_of_box)
    if isinstance(rois, (list, tuple)) and _is_one_per_image(rois):
        return _regions_per_image(rois, batch_indices, images, dtype, count)
    columns = (count + 1, count) if batch_indices is None else (count, count + 1)
    array = box_table("rois", rois, columns, f"(K, {count + 1}) or (K, {count})")
    if array.shape[1] == count:
        if batch_indices is None:
            raise ValueError(
                f"rois of shape {array.shape} need batch_indices; without it rois must have "
                f"shape (K, {count + 1}): batch index, {', '.join(numbers_of_box)}"
            )
        numbers = check_images(
            "batch_indices", batch_indices, len(array), images, "batch_indices[{row}]"
        )
        return Regions(coordinates(array, dtype), numbers)
    if batch_indices is not None:
        raise ValueError(
            f"rois of shape {array.shape} hold batch indices already; give batch_indices only "
            f"with rois of shape (K, {count})"
        )
    numbers = check_images("rois", array[:, 0], len(array), images, "rois[{row}, 0]")
    return Regions(coordinates(array[:, 1:], dtype), numbers)


def _is_one_per_image(rois: Sequence[Any]) -> bool:
    """Tell a sequence of two-dimensional arrays from one array written as a nested sequence."""
    if any(rank(item) == 2 for item in rois):
        return True
    return bool(rois) and all(rank(item) == 1 and len(item) == 0 for item in rois)


def rank(item: Any) -> int:
    """Return how deeply sequences are nested, by their first items."""
    if is_array(item):
        return int(item.ndim)
    if isinstance(item, (list, tuple)):
        return 1 + (rank(item[0]) if item else 0)
    return int(np.ndim(item))


def _regions_per_image(
    rois: Sequence[Any],
    batch_indices: ArrayLike | None,
    images: int,
    dtype: np.dtype[Any],
    count: int,
) -> Regions:
    if batch_indices is not None:
        raise ValueError("batch_indices must not be given with rois as one array per image")
    if len(rois) != images:
        raise ValueError(
            f"rois as a sequence must hold one array per image: got {len(rois)} for {images}"
        )
    parts = []
    for image, item in enumerate(rois):
        array = box_table(f"rois[{image}]", item, (count,), f"(L, {count})")
        parts.append(coordinates(array, dtype))
    return Regions(*joined(parts, count, real_type(dtype)))


def box_table(name: str, values: Any, columns: tuple[int, ...], form: str) -> Array:
    """Return boxes as rows with one of these numbers of columns; an empty list has no rows."""
    array = number_array(name, values)
    if array.size == 0 and array.ndim == 1:
        array = array.reshape(0, columns[0])
    if array.ndim != 2 or array.shape[1] not in columns:
        raise ValueError(f"{name} must have shape {form}; got {array.shape}")
    return array


def coordinates(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return box coordinates in the type that geometry is computed in."""
    if array.dtype == real_type(dtype):
        return converted(array, array.dtype)
    with np.errstate(over="ignore"):  # beyond float32: infinite, and so outside every map
        return converted(array, real_type(dtype))


def crop_regions(boxes: Any, box_indices: Any, images: int, dtype: np.dtype[Any]) -> Regions:
    """Return normalised (K, 4) y1, x1, y2, x2 boxes as x1, y1, x2, y2, with image numbers."""
    array = box_table("boxes", boxes, (4,), "(K, 4): y1, x1, y2, x2")
    numbers = check_images("box_indices", box_indices, len(array), images, "box_indices[{row}]")
    return Regions(coordinates(reversed_pairs(array), dtype), numbers)


def size_pair(name: str, value: Any) -> tuple[int, int]:
    """Return (rows, columns), each at least 1, from an int or a pair."""
    rows, columns = _pair(name, value)
    if min(rows, columns) < 1 or max(rows, columns) > LARGEST_AXIS:
        raise ValueError(f"{name} must be from 1 to {LARGEST_AXIS} each way, got {value!r}")
    return rows, columns


def sampling_pair(value: Any) -> tuple[int, int]:
    """Return samples per bin (vertical, horizontal); 0 is adaptive."""
    rows, columns = _pair("sampling_ratio", value)
    if min(rows, columns) < 0 or max(rows, columns) > LARGEST_SAMPLING_RATIO:
        raise ValueError(
            f"sampling_ratio must be from 0 (adaptive) to {LARGEST_SAMPLING_RATIO}, got {value!r}"
        )
    return rows, columns


def _pair(name: str, value: Any) -> tuple[int, int]:
    if type(value) is int:
        return value, value
    items = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(items) != 2:
        raise ValueError(f"{name} must be an int or a pair of ints, got {value!r}")
    try:
        if any(isinstance(item, bool) for item in items):
            raise TypeError
        return operator.index(items[0]), operator.index(items[1])
    except TypeError:
        raise TypeError(f"{name} must be an int or a pair of ints, got {value!r}") from None


def real_number(name: str, value: Any) -> float:
    """Return a finite float."""
    number = _float(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def _float(name: str, value: Any) -> float:
    """Return any real scalar as a float; text, booleans and arrays of several are errors."""
    if type(value) is float:
        return value
    try:
        scalar = np.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a real number, got {value!r}") from None
    numeric = scalar.dtype.kind in "fiu" or dtype_name(scalar.dtype) == "bfloat16"
    if scalar.ndim != 0 or not (numeric or isinstance(value, int)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None


def extrapolation(value: Any) -> float:
    """Return the extrapolation value: any float, infinities and NaN included."""
    return _float("extrapolation_value", value)  # beyond float32 it becomes infinite there


def flag(name: str, value: Any) -> bool:
    """Return a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return bool(value)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        options = " or ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be {options}, got {value!r}")
    return value


def features(name: str, array: Any, layout: Layout) -> Array:
    """Return checked maps."""
    maps = float_array(name, array)
    check_axes(name, maps.shape, layout)
    return maps


def match_gradient(gradient: Array, boxes: int, map_shape: Shape4, layout: Layout) -> None:
    """Check an output gradient against the boxes and the maps; its grid of bins is its own."""
    size = height_width(gradient.shape, layout)
    if gradient.shape != pooled_shape(boxes, channels(map_shape, layout), size, layout):
        form = "(K, PH, PW, C)" if layout == "NHWC" else "(K, C, PH, PW)"
        raise ValueError(
            f"grad_output must have shape {form} with K={boxes} and "
            f"C={channels(map_shape, layout)}, got {gradient.shape}"
        )
    if min(size) < 1:
        raise ValueError(f"grad_output must have at least 1 by 1 bins, got {gradient.shape}")


def winners(array: Any, shape: tuple[int, ...], cells: int | None = None) -> Array:
    """Return a checked argmax as int32 or int64; `cells` bounds it where it names map cells."""
    if not is_array(array) or array.dtype.kind not in "iu":
        came = array.dtype if is_array(array) else type(array).__name__
        raise TypeError(f"argmax must be an integer array, got {came}")
    if array.shape != shape:
        raise ValueError(f"argmax must have grad_output's shape {shape}, got {array.shape}")
    known = values_of(array)
    if known is None:
        narrow = np.can_cast(array.dtype, np.int32)
        return contiguous(array, np.dtype(np.int32 if narrow else np.int64))
    low, high = (int(known.min()), int(known.max())) if known.size else (-1, -1)
    limit = 2**63 if cells is None else cells
    if low < -1 or high >= limit:
        raise ValueError(f"argmax must be from -1 to {limit - 1}, got values from {low} to {high}")
    return contiguous(array, np.dtype(np.int64 if high > LARGEST_AXIS else np.int32))


class Output(NamedTuple):
    """Where results go: `work` is what the backend writes to, `target` what the user gets."""

    work: Array | None
    target: Array | None

    def finish(self, result: Array) -> Array:
        """Return the user's array, filled."""
        if self.target is None or self.target is result:
            return result
        assign(self.target, result)
        return self.target


def output(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: tuple[Any, ...]
) -> Output:
    """Check `out`; any strides and byte order will do, and it may overlap the inputs."""
    if out is None:
        return Output(None, None)
    if not is_array(out):
        raise TypeError(f"out must be a NumPy or CuPy array or None, got {type(out).__name__}")
    if dtype_name(out.dtype) != dtype_name(dtype):
        raise TypeError(f"out must have dtype {dtype}, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}")
    direct = out.flags.c_contiguous
    if isinstance(out, np.ndarray):
        if not out.flags.writeable:
            raise ValueError("out must be writeable, got a read-only array")
        direct = direct and out.dtype.isnative and out.flags.aligned
    overlaps = any(may_share_memory(out, item) for item in inputs)
    return Output(out if direct and not overlaps else None, out)


def pooled_output(
    out: Any,
    maps: Array,
    boxes: int,
    size: tuple[int, int],
    layout: Layout,
    inputs: tuple[Any, ...],
) -> Output:
    """Check `out` for pooled values."""
    shape = pooled_shape(boxes, channels(maps.shape, layout), size, layout)
    return output(out, shape, maps.dtype, inputs)


def same_dtype(gradient: Array, maps: Array) -> None:
    """Check that a gradient and its maps are of one type."""
    if gradient.dtype != maps.dtype:
        raise TypeError(
            f"grad_output must have the features' dtype {maps.dtype}, got {gradient.dtype}"
        )
