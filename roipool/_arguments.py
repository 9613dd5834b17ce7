"""Validate user arguments once, and convert them for the engines.

Every error names the argument, its value and what is allowed. Nothing is written to before all
checks of a call have passed.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from roipool._arrays import LIBRARY_OF, NUMPY, Array, Library, is_array, parts_of, refuse_masks
from roipool._dtypes import BYTES, FLOATS, allowed_dtypes, dtype_name
from roipool._errors import kind_of, shortened, shown
from roipool._layout import (
    AXES,
    LAYOUTS,
    MAP_LAYOUTS,
    VOLUME_LAYOUTS,
    Layout,
    Shape4,
    Shape5,
    VolumeLayout,
    groups_of_bins,
    merged_shape,
    pooled_channels,
    volume_channels,
    volume_size,
)

Choice = TypeVar("Choice", bound=str)
Scale: TypeAlias = float | tuple[float, float]  # of a map, or of its rows and columns

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)

# Cell numbers along one axis, and bins, are 32-bit; offsets and planes are not.
MAX_AXIS = 2**31 - 1
# Elements: beyond this, sizes in bytes overflow 64 bits.
MAX_ELEMENTS = 2**59
MOST_AXES = 5  # of any array
# A bin's samples are numbered in 32 bits: 2^15 by 2^15 of them.
MAX_SAMPLING_RATIO = 2**15
# Types of the sizes of a program that is compiled for any: front ends of compilers add theirs.
SYMBOLS: set[type] = set()


def layout(value: Any) -> Layout:
    """Return the layout if it is one."""
    if isinstance(value, str) and value == "NCHW":  # the usual one, in half the time
        return "NCHW"
    return choice("layout", value, LAYOUTS)


def volume_layout(value: Any) -> VolumeLayout:
    """Return the layout of volumes if it is one."""
    return choice("layout", value, VOLUME_LAYOUTS)


def float_array(
    name: str,
    array: Any,
    dtypes: Sequence[str] = FLOATS,
    dimensions: int = 4,
    layout: Layout | None = None,
) -> Array:
    """Return an array of one of these dtypes in native byte order; on a host it is C-contiguous.

    Feature maps have a `layout`.
    """
    library = LIBRARY_OF[type(array)]
    if library is None:
        raise TypeError(f"{name} must be a NumPy or CuPy array, got {kind_of(name, array)}")
    array = library.plain(array)
    dtype = library.dtype(array)
    takes_bool = "uint8" in dtypes and dtypes != BYTES  # masks of 0 and 1; not quantised codes
    if takes_bool and dtype.kind == "b":
        array = library.bytes_of(array)
        dtype = library.dtype(array)
    if dtype_name(dtype) not in dtypes:
        allowed = ", ".join((*dtypes, "bool") if takes_bool else dtypes)
        raise TypeError(
            f"{name} must have dtype {allowed}, got {shortened(str(dtype))}; "
            f"convert it, for example {name}{library.to_float32}"
        )
    if array.ndim != dimensions:
        raise ValueError(
            f"{name} must have {dimensions} dimensions, got shape {tuple(array.shape)}"
            f"{_axes_hint(name, array.ndim, dimensions)}"
        )
    total = sum(array.shape)
    if type(total) is not int or total > MAX_AXIS:  # a view may be larger than any memory
        _check_large(name, array.shape, layout)
    return library.readable(array, dtype if dtype.isnative else dtype.newbyteorder("="))


def _check_large(name: str, shape: Sequence[int], layout: Layout | None) -> None:
    """Check the sizes of an array whose sum is large or, of a compiled program, a symbol."""
    if type(sum(shape)) is int:
        check_elements(name, shape)
    if layout is not None:
        _check_axes(name, shape, layout)


def _axes_hint(name: str, given: int, needed: int) -> str:
    """Return how a single map, such as a picture, gets the axes that it lacks."""
    if needed != 4 or given not in (2, 3):
        return ""
    if given == 2:
        return f"; one map of one channel is {name}[None, None]"
    one = f"; one map is {name}[None]"
    return f"{one}, of a picture (H, W, C) with layout='NHWC'" if name == "features" else one


def map_shape(name: str, shape: Any, layout: Layout = "NCHW") -> Shape4:
    """Return four non-negative sizes; `name` says whose they are."""
    images, first, second, third = _sizes(name, shape, "four", layout)
    sizes = (images, first, second, third)
    _check_axes(name, sizes, layout)
    check_elements(name, sizes)
    return sizes


def volume_shape(name: str, shape: Any, layout: VolumeLayout = "NCDHW") -> Shape5:
    """Return five non-negative sizes; `name` says whose they are."""
    images, first, second, third, fourth = _sizes(name, shape, "five", layout)
    sizes = (images, first, second, third, fourth)
    _check_rows(name, sizes, layout)
    check_elements(name, sizes)
    return sizes


def _sizes(name: str, shape: Any, count: str, layout: str) -> tuple[int, ...]:
    """Return as many non-negative sizes as a layout has axes; `count` is their number in words."""
    sizes = whole_sizes(name, shape, f"{count} integers", len(layout))
    if len(sizes) != len(layout):
        raise ValueError(f"{name} must be {count} integers in {layout} order, got {shown(shape)}")
    return sizes


def whole_sizes(
    name: str, shape: Any, kind: str = "integers", most: int = MOST_AXES
) -> tuple[int, ...]:
    """Return non-negative sizes, of which there may be one more than `most`."""
    try:
        sizes = tuple(map(operator.index, itertools.islice(shape, most + 1)))
    except (TypeError, NotImplementedError):  # the latter is a memoryview's of several dimensions
        raise TypeError(f"{name} must be {kind}, got {shown(shape)}") from None
    if min(sizes, default=0) < 0:
        raise ValueError(f"{name} must not have negative sizes, got {shown(sizes)}")
    return sizes


def check_elements(name: str, sizes: Sequence[int]) -> None:
    """Check that the bytes of an array of some sizes can be counted."""
    elements = 1
    for size in sizes:  # a loop, which torch's compiler can trace
        elements *= max(size, 1)
    if elements > MAX_ELEMENTS:
        raise MemoryError(f"{name} {shown(sizes)} is more than any memory holds")


def _check_axes(name: str, shape: Sequence[int], layout: Layout) -> None:
    """Check that 32 bits number the cells along each axis of a map."""
    _, height, width = AXES[layout]
    for axis in (height, width):
        size = shape[axis]
        if type(size) is not int or size <= MAX_AXIS:  # of a symbol the answer would be a guard
            continue
        raise ValueError(f"{name}: height and width must be at most {MAX_AXIS}, got {shown(shape)}")


def _check_rows(name: str, shape: Sequence[int], layout: VolumeLayout) -> None:
    """Check that 32 bits number the rows of all planes of a volume, and its columns."""
    _, rows, columns = AXES[MAP_LAYOUTS[layout]]
    sizes = merged_shape(shape, layout)
    for axis in (rows, columns):
        size = sizes[axis]
        if type(size) is not int or size <= MAX_AXIS:
            continue
        raise ValueError(
            f"{name}: depth times height, and width, must be at most {MAX_AXIS}, got {shown(shape)}"
        )


def volumes(
    name: str,
    array: Any,
    layout: VolumeLayout = "NCDHW",
    dtypes: Sequence[str] = FLOATS,
) -> Array:
    """Return checked volumes."""
    checked = float_array(name, array, dtypes, dimensions=5)
    _check_rows(name, checked.shape, layout)
    return checked


def volume_gradient(
    name: str, shape: Sequence[int], boxes: int, channels: int, layout: VolumeLayout = "NCDHW"
) -> tuple[int, int, int]:
    """Check the shape of a gradient of values pooled from volumes; return its bins."""
    size = volume_size(shape, layout)
    if min(size) < 1:
        raise ValueError(f"{name} must have at least 1 by 1 by 1 bins, got {tuple(shape)}")
    if shape[0] != boxes or volume_channels(shape, layout) != channels:
        form = "(K, PD, PH, PW, C)" if layout == "NDHWC" else "(K, C, PD, PH, PW)"
        raise ValueError(
            f"{name} must have shape {form} with K={boxes} and C={channels}, got {tuple(shape)}"
        )
    return size


def grad_output(
    name: str,
    array: Any,
    boxes: int,
    input_shape: Shape4,
    layout: Layout = "NCHW",
    group_size: tuple[int, int] = (1, 1),
) -> tuple[int, int]:
    """Check a checked array as the gradient of pooled values; return its bins."""
    channel, row, column = AXES[layout]
    size, count = (array.shape[row], array.shape[column]), input_shape[channel]
    if min(size) < 1:
        raise ValueError(f"{name} must have at least 1 by 1 bins, got {tuple(array.shape)}")
    if group_size != (1, 1):  # not a call, for the sake of small ones
        count = pooled_channels("the features", count, groups_of_bins(group_size, size))
    if array.shape[0] != boxes or array.shape[channel] != count:
        form = "(K, PH, PW, C)" if layout == "NHWC" else "(K, C, PH, PW)"
        raise ValueError(
            f"{name} must have shape {form} with K={boxes} and C={count}, got {tuple(array.shape)}"
        )
    return size


def same_dtype(name: str, gradient: Array, features_name: str, maps: Array) -> None:
    """Check that a gradient and its features are of one dtype."""
    if gradient.dtype != maps.dtype:
        own, expected = dtype_of(gradient), dtype_of(maps)
        raise TypeError(f"{name} must have the dtype of {features_name}, {expected}, got {own}")


def pyramid(name: str, maps: Mapping[str, Any], layout: Layout = "NCHW") -> list[Array]:
    """Return checked maps of one pyramid, given by their names; `name` is that of all of them."""
    checked = {each: float_array(each, one, layout=layout) for each, one in maps.items()}
    _check_alike(name, [one.shape for one in checked.values()], layout)
    first, *others = checked.items()
    for each, one in others:
        same_dtype(each, one, *first)
    return [*checked.values()]


def pyramid_shapes(name: str, shapes: Mapping[str, Any], layout: Layout = "NCHW") -> list[Shape4]:
    """Return the checked shapes of such maps."""
    checked = [map_shape(each, shape, layout) for each, shape in shapes.items()]
    _check_alike(name, checked, layout)
    return checked


def _check_alike(name: str, shapes: Sequence[Shape4], layout: Layout) -> None:
    """Check that maps differ in height and width only, and that there are some."""
    if not shapes:
        raise ValueError(f"{name} must hold one map at least, got none")
    channel, *_ = AXES[layout]
    for i, shape in enumerate(shapes):
        if shape[0] != shapes[0][0] or shape[channel] != shapes[0][channel]:
            raise ValueError(
                f"{name} must have equal numbers of images and channels, got {shapes[0]} and, at "
                f"{i}, {shape}"
            )


def numbered(name: str, values: Any) -> dict[str, Any]:
    """Return the items of a list or tuple by their names."""
    return {f"{name}[{i}]": one for i, one in enumerate(sequence(name, values))}


def same_shape(name: str, array: Any, gradient: Array) -> Array:
    """Return an array that holds one number for each pooled value."""
    values = number_array(name, array)
    if values.shape != gradient.shape:
        shapes = f"{tuple(gradient.shape)}, got {tuple(values.shape)}"
        raise ValueError(f"{name} must have the gradient's shape {shapes}")
    return values


# ---- Numbers of any kind


def number_array(name: str, values: Any) -> Array:
    """Return real numbers as an array; text, booleans, objects and complex numbers are errors."""
    library = LIBRARY_OF[type(values)]
    if type(values) is not np.ndarray:
        refuse_masks(name, parts_of(values))
    if library is not None:
        array = library.plain(values)
    else:
        try:
            array = np.asarray(values)
        except ValueError:
            raise ValueError(f"{name} must be a rectangular array of numbers") from None
        if array.size == 0:
            return array.astype(np.float64)
    dtype = array.dtype if library is None else library.dtype(array)
    if dtype.kind not in "fiu" and dtype_name(dtype) != "bfloat16":
        raise TypeError(f"{name} must hold real numbers, got dtype {shortened(str(dtype))}")
    return array


def dtype_of(array: Any) -> np.dtype[Any]:
    """Return the dtype of an array of any library as NumPy's."""
    return (LIBRARY_OF[type(array)] or NUMPY).dtype(array)


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in a dtype; numbers beyond it become infinite without a warning.

    Infinite coordinates are outside every map.
    """
    converted: Array = (LIBRARY_OF[type(array)] or NUMPY).astype(array, dtype)
    return converted


# ---- Numbers and choices


def sequence(name: str, values: Any) -> list[Any]:
    """Return the items of a list or tuple; an array is no sequence of maps or shapes."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name} must be a list or tuple, got {type(values).__name__}")
    return list(values)


def scales(
    name: str, values: Any, maps: int, scale: Callable[[str, Any], Any] | None = None
) -> tuple[Any, ...]:
    """Return the scale of each of several maps; `scale` checks one, by default as a real number."""
    named, scale = numbered(name, values), scale or real_number
    if len(named) != maps:
        raise ValueError(f"{name} must hold one number per map: got {len(named)} for {maps}")
    return tuple([scale(each, one) for each, one in named.items()])


def _index(value: Any) -> int:
    """Return an int; anything else is a TypeError."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)


def size(value: Any) -> int:
    """Return an int, or a symbol of one; anything else is a TypeError."""
    return value if type(value) in SYMBOLS else _index(value)


def whole_number(name: str, value: Any, index: Callable[[Any], int] = _index) -> int:
    """Return an int."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {shown(value)}") from None


def size_pair(name: str, value: Any) -> tuple[int, int]:
    """Return (rows, columns), each at least 1, from an int or a pair."""
    if type(value) is int:
        rows, columns = value, value
    else:
        rows, columns = _pair(name, value, size)
    for one in (rows, columns):
        if type(one) not in SYMBOLS and not 1 <= one <= MAX_AXIS:
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


def _pair(name: str, value: Any, index: Callable[[Any], int] = _index) -> tuple[int, int]:
    numbers = items(value, 2)
    if len(numbers) != 2:
        raise ValueError(f"{name} must be an int or a pair of ints, got {shown(value)}")
    first, second = numbers
    if type(first) is int and type(second) is int:  # the usual ones, at once
        return first, second
    try:
        return index(first), index(second)
    except TypeError:
        raise TypeError(f"{name} must be an int or a pair of ints, got {shown(value)}") from None


def items(value: Any, count: int) -> tuple[Any, ...]:
    """Return the items of a tuple, list or array (n,); of anything else, `count` times itself."""
    if isinstance(value, (tuple, list)):
        return tuple(value)
    if getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist"):
        return tuple(value.tolist())
    return (value,) * count


def size_triple(name: str, value: Any) -> tuple[int, int, int]:
    """Return (depth, rows, columns), each at least 1, from an int or three."""
    depth, rows, columns = (whole_number(name, each, size) for each in _triple(name, value, "ints"))
    numbers = (depth * rows, depth, rows, columns)
    if not all(type(each) in SYMBOLS or 1 <= each <= MAX_AXIS for each in numbers):
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


def map_scale(name: str, value: Any) -> Scale:
    """Return the scale of a map, or those of its (rows, columns) where they differ."""
    if type(value) is float and abs(value) < math.inf:  # the usual one, at once
        return value
    if not isinstance(value, (tuple, list)) and getattr(value, "ndim", 0) != 1:
        return real_number(name, value)
    numbers = items(value, 2)
    if len(numbers) != 2:
        raise ValueError(
            f"{name} must be one number, or two for (rows, columns), got {shown(value)}"
        )
    rows, columns = (real_number(name, each) for each in numbers)
    return rows if rows == columns else (rows, columns)


def one_scale(name: str, value: Any, reason: str) -> float:
    """Return the scale of both axes of a map; `reason` says why there cannot be two."""
    scale = map_scale(name, value)
    if isinstance(scale, tuple):
        raise ValueError(f"{name} must be equal for rows and columns, got {scale}: {reason}")
    return scale


def _triple(name: str, value: Any, kind: str) -> tuple[Any, Any, Any]:
    numbers = items(value, 3)
    if len(numbers) != 3:
        raise ValueError(
            f"{name} must be one or three {kind}, (depth, rows, columns), got {shown(value)}"
        )
    first, second, third = numbers
    return first, second, third


def real_number(name: str, value: Any) -> float:
    """Return a finite float."""
    number = value if type(value) is float else any_float(name, value)
    if not abs(number) < math.inf:  # torch's compiler cannot trace `math.isfinite`
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def any_float(name: str, value: Any) -> float:
    """Return any real scalar as a float; text, booleans and arrays of several are errors."""
    if type(value) is float and value == value:  # the usual one, in a tenth of the time
        return value
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


# ---- Maxima and results


def argmax(library: Library, array: Any, shape: tuple[int, ...], cells: int | None = None) -> Array:
    """Return a checked argmax as int32 or int64; `cells` bounds it where it names map cells."""
    if not is_array(array):
        raise TypeError(f"argmax must be an integer array, got {type(array).__name__}")
    array = library.plain(array)
    dtype = library.dtype(array)
    if dtype.kind not in "iu":
        raise TypeError(f"argmax must be an integer array, got {shortened(str(dtype))}")
    if tuple(array.shape) != tuple(shape):
        shapes = f"{tuple(shape)}, got {tuple(array.shape)}"
        raise ValueError(f"argmax must have grad_output's shape {shapes}")
    checked = library.checked_values(array)
    if checked is None:
        narrow = np.can_cast(dtype, np.int32)
        return library.readable(array, np.dtype(np.int32 if narrow else np.int64))
    low, high = (int(checked.min()), int(checked.max())) if checked.size else (-1, -1)
    limit = 2**63 if cells is None else cells
    if low < -1 or high >= limit:
        raise ValueError(f"argmax must be from -1 to {limit - 1}, got values from {low} to {high}")
    return library.readable(array, np.dtype(np.int64 if high > MAX_AXIS else np.int32))


# Names of the dtypes that NumPy lacks, or does not read: front ends add those of their arrays.
DTYPE_NAMES: dict[Any, str] = {"bfloat16": "bfloat16"}


def pooled_dtype(value: Any, features: str) -> str:
    """Return the name of the dtype that pooled values are to have, given that of the features."""
    allowed, name = allowed_dtypes(features), name_of_dtype(value)
    if name not in allowed:
        raise TypeError(
            f"dtype must be None or {', '.join(allowed)} for {features} features, got "
            f"{shown(value)}"
        )
    return name


def name_of_dtype(value: Any) -> str:
    """Return the name of a dtype that a caller asks for; nothing if it is none."""
    try:
        return DTYPE_NAMES.get(value) or ("" if value is None else np.dtype(value).name)
    except (TypeError, ValueError, RecursionError):  # the latter is a list's that holds itself
        return ""


def output(
    library: Library, shape: tuple[int, ...], dtype: np.dtype[Any], /, out: Any, **inputs: Any
) -> Array | None:
    """Check `out`; return what engines can fill: None if it overlaps one of the inputs."""
    if not is_array(out):
        raise TypeError(f"out must be a NumPy or CuPy array or None, got {type(out).__name__}")
    out = library.plain(out)
    if dtype_name(out.dtype) != dtype_name(dtype):
        raise TypeError(f"out must have dtype {dtype}, got {shortened(str(out.dtype))}")
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}")
    if not library.can_be_filled(out) or any(
        LIBRARY_OF[type(array)] is library and library.may_share_memory(out, array)
        for value in inputs.values()
        for array in parts_of(value)
    ):
        return None
    return out
