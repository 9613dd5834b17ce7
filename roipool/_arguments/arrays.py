"""Arrays of maps, gradients and numbers, and their shapes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roipool._arguments.numbers import MAX_AXIS, MAX_ELEMENTS
from roipool._arrays import LIBRARY_OF, NUMPY, Array, Library, is_array, parts_of, refuse_masks
from roipool._dtypes import BYTES, FLOATS, dtype_name
from roipool._errors import shortened, shown
from roipool._layout import (
    AXES,
    MAP_LAYOUTS,
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


def float_array(
    name: str, array: Any, dtypes: Sequence[str] = FLOATS, dimensions: int = 4
) -> Array:
    """Return an array of one of these dtypes in native byte order; on a host it is C-contiguous.

    Bytes are read on a host only.
    """
    library = LIBRARY_OF[type(array)]
    if library is None:
        raise TypeError(f"{name} must be a NumPy or CuPy array, got {type(array).__name__}")
    array = library.plain(array)
    dtype = array.dtype
    if dtype_name(dtype) not in dtypes or (library is not NUMPY and dtype_name(dtype) in BYTES):
        allowed = dtypes if library is NUMPY else FLOATS
        raise TypeError(
            f"{name} must have dtype {', '.join(allowed)}, got {shortened(str(dtype))}; "
            f"convert it, for example {name}.astype(np.float32)"
        )
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, got shape {array.shape}")
    return library.readable(array, dtype if dtype.isnative else dtype.newbyteorder("="))


def features(
    name: str, array: Any, layout: Layout = "NCHW", dtypes: Sequence[str] = FLOATS
) -> Array:
    """Return checked feature maps."""
    maps = float_array(name, array, dtypes)
    _check_axes(name, maps.shape, layout)
    return maps


def map_shape(name: str, shape: Any, layout: Layout = "NCHW") -> Shape4:
    """Return four non-negative sizes; `name` says whose they are."""
    images, first, second, third = _sizes(name, shape, "four", layout)
    sizes = (images, first, second, third)
    _check_axes(name, sizes, layout)
    _check_elements(name, sizes)
    return sizes


def volume_shape(name: str, shape: Any, layout: VolumeLayout = "NCDHW") -> Shape5:
    """Return five non-negative sizes; `name` says whose they are."""
    images, first, second, third, fourth = _sizes(name, shape, "five", layout)
    sizes = (images, first, second, third, fourth)
    _check_rows(name, sizes, layout)
    _check_elements(name, sizes)
    return sizes


def _sizes(name: str, shape: Any, count: str, layout: str) -> tuple[int, ...]:
    """Return as many non-negative sizes as a layout has axes; `count` is their number in words."""
    try:
        sizes = tuple(map(operator.index, itertools.islice(shape, len(layout) + 1)))
    except (TypeError, NotImplementedError):  # the latter is a memoryview's of several dimensions
        raise TypeError(f"{name} must be {count} integers, got {shown(shape)}") from None
    if len(sizes) != len(layout):
        raise ValueError(f"{name} must be {count} integers in {layout} order, got {shown(shape)}")
    if min(sizes) < 0:
        raise ValueError(f"{name} must not have negative sizes, got {shown(sizes)}")
    return sizes


def _check_elements(name: str, sizes: Sequence[int]) -> None:
    elements = 1
    for size in sizes:  # a loop, which torch's compiler can trace
        elements *= max(size, 1)
    if elements > MAX_ELEMENTS:
        raise MemoryError(f"{name} {shown(sizes)} is more than any memory holds")


def _check_axes(name: str, shape: Sequence[int], layout: Layout) -> None:
    """Check that 32 bits number the cells along each axis of a map."""
    _, height, width = AXES[layout]
    if shape[height] > MAX_AXIS or shape[width] > MAX_AXIS:
        raise ValueError(f"{name}: height and width must be at most {MAX_AXIS}, got {shown(shape)}")


def _check_rows(name: str, shape: Sequence[int], layout: VolumeLayout) -> None:
    """Check that 32 bits number the rows of all planes of a volume, and its columns."""
    _, rows, columns = AXES[MAP_LAYOUTS[layout]]
    sizes = merged_shape(shape, layout)
    if sizes[rows] > MAX_AXIS or sizes[columns] > MAX_AXIS:
        raise ValueError(
            f"{name}: depth times height, and width, must be at most {MAX_AXIS}, got {shown(shape)}"
        )


def volumes(name: str, array: Any, layout: VolumeLayout = "NCDHW") -> Array:
    """Return checked volumes."""
    checked = float_array(name, array, dimensions=5)
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
        raise ValueError(f"{name} must have at least 1 by 1 bins, got {array.shape}")
    if group_size != (1, 1):  # not a call, for the sake of small ones
        count = pooled_channels("the features", count, groups_of_bins(group_size, size))
    if array.shape[0] != boxes or array.shape[channel] != count:
        form = "(K, PH, PW, C)" if layout == "NHWC" else "(K, C, PH, PW)"
        raise ValueError(
            f"{name} must have shape {form} with K={boxes} and C={count}, got {array.shape}"
        )
    return size


def same_dtype(name: str, gradient: Array, features_name: str, maps: Array) -> None:
    """Check that a gradient and its features are of one dtype."""
    if gradient.dtype != maps.dtype:
        raise TypeError(
            f"{name} must have the dtype of {features_name}, {maps.dtype}, got {gradient.dtype}"
        )


def pyramid(name: str, maps: Mapping[str, Any], layout: Layout = "NCHW") -> list[Array]:
    """Return checked maps of one pyramid, given by their names; `name` is that of all of them."""
    checked = {each: features(each, one, layout) for each, one in maps.items()}
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


def same_shape(name: str, array: Any, gradient: Array) -> Array:
    """Return an array that holds one number for each pooled value."""
    values = number_array(name, array)
    if values.shape != gradient.shape:
        raise ValueError(
            f"{name} must have the gradient's shape {gradient.shape}, got {values.shape}"
        )
    return values


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
    if array.dtype.kind not in "fiu" and dtype_name(array.dtype) != "bfloat16":
        raise TypeError(f"{name} must hold real numbers, got dtype {shortened(str(array.dtype))}")
    return array


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in a dtype; numbers beyond it become infinite without a warning.

    Infinite coordinates are outside every map.
    """
    if array.dtype.itemsize <= dtype.itemsize:
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def argmax(library: Library, array: Any, shape: tuple[int, ...], cells: int | None = None) -> Array:
    """Return a checked argmax as int32 or int64; `cells` bounds it where it names map cells."""
    if not is_array(array):
        raise TypeError(f"argmax must be an integer array, got {type(array).__name__}")
    array = library.plain(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"argmax must be an integer array, got {shortened(str(array.dtype))}")
    if array.shape != shape:
        raise ValueError(f"argmax must have grad_output's shape {shape}, got {array.shape}")
    checked = library.checked_values(array)
    if checked is None:
        narrow = np.can_cast(array.dtype, np.int32)
        return library.readable(array, np.dtype(np.int32 if narrow else np.int64))
    low, high = (int(checked.min()), int(checked.max())) if checked.size else (-1, -1)
    limit = 2**63 if cells is None else cells
    if low < -1 or high >= limit:
        raise ValueError(f"argmax must be from -1 to {limit - 1}, got values from {low} to {high}")
    return library.readable(array, np.dtype(np.int64 if high > MAX_AXIS else np.int32))


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
