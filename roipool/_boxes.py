"""Boxes: how functions name and take them, and how engines read them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from roipool import _arguments as check
from roipool import _cpu
from roipool._arrays import LIBRARY_OF, NUMPY, Array, Library, is_array
from roipool._dtypes import dtype_name, real_dtype
from roipool._layout import Layout, nchw_view
from roipool._types import Boxes, Numbers

MOST_FRACTION = 10  # of a map's size: boxes that end beyond are taken for pixels
# The types in which kernels on a GPU read batch indices without a copy.
DEVICE_INDEX_TYPES = ("int32", "int64", "float32", "float64")


class Regions(NamedTuple):
    """Boxes as engines read them: (K, 4) x1, y1, x2, y2, and the batch index of each.

    Where bins are moved, their offsets follow: by x those of all bins, row by row, then those by y.

    On a GPU both may be columns of one table, and batch indices are not checked. `levels` (K,)
    int64 says for each box which of several maps it is pooled from; a box of none of them pools
    nothing and gets no gradient.
    """

    boxes: Array
    batch_indices: Array
    levels: Array | None = None


def box_table(name: str, values: Any, columns: tuple[int, ...], form: str = "") -> Array:
    """Return boxes as rows with one of these numbers of columns; an empty list has no rows.

    `form` is how an error writes the shape, by default with K rows.
    """
    array = check.number_array(name, values)
    if array.ndim == 1 and array.shape[0] == 0:
        array = array.reshape(0, columns[0])
    if array.ndim != 2 or array.shape[1] not in columns:
        by_image = array.ndim == 3 and len(columns) > 1
        hint = f"; for the boxes of each image give list({name})" if by_image else ""
        form = form or " or ".join(f"(K, {count})" for count in columns)
        raise ValueError(f"{name} must have shape {form}; got {tuple(array.shape)}{hint}")
    return array


def coordinates(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return box coordinates in the type that definitions compute in, for features of `dtype`."""
    library, real = LIBRARY_OF[type(array)] or NUMPY, real_dtype(dtype)
    return library.table(
        array if library.dtype(array) == real else library.astype(array, real), real
    )


def batch_indices(name: str, values: Any, boxes: int, images: int, column: str = "") -> Array:
    """Return batch indices; each must be a whole number in [0, images).

    On a GPU they are as they are, and kernels skip boxes whose index is not; `column` says where
    in a row an index is, for example ``", 0"``.
    """
    array = check.number_array(name, values)
    if array.ndim != 1 or array.shape[0] != boxes:
        raise ValueError(f"{name} must have shape ({boxes},), got {tuple(array.shape)}")
    return _image_of_each(name, array, images, column)


def _image_of_each(name: str, array: Array, images: int, column: str) -> Array:
    """Return batch indices from an array of numbers."""
    library = LIBRARY_OF[type(array)] or NUMPY
    checked = library.checked_values(array)
    if checked is not None:
        numbers, row = _cpu.whole_numbers(checked, images, False)
        if row >= 0:
            _refuse_index(f"{name}[{row}{column}]", checked[row], images)
        if checked is array:
            return numbers
    dtype = library.dtype(array)
    if dtype_name(dtype) not in DEVICE_INDEX_TYPES:
        dtype = np.dtype(np.int64 if dtype.kind in "iu" else np.float32)
    numbers = library.table(array, dtype)
    if checked is not None:
        return numbers
    return _checked_later(library, numbers, "batch_indices", name, images, column)


def _checked_later(library: Library, numbers: Array, rule: str, *arguments: Any) -> Array:
    """Return numbers whose values are not known, checked when they are, if the library can."""
    checked_later = getattr(library, "checked_later", None)
    return numbers if checked_later is None else checked_later(numbers, rule, *arguments)


def _refuse_index(name: str, index: Any, images: int) -> NoReturn:
    raise ValueError(
        f"{name} is {index}, but batch indices must be whole numbers from 0 up to, not including, "
        f"{images}, the number of images"
    )


def levels(name: str, values: Any, boxes: int, maps: int) -> Array:
    """Return for each box the index of its map as int64; on a GPU they are not checked."""
    array = check.number_array(name, values)
    if array.ndim != 1 or array.shape[0] != boxes:
        raise ValueError(f"{name} must have shape ({boxes},), got {tuple(array.shape)}")
    library = LIBRARY_OF[type(array)] or NUMPY
    dtype = library.dtype(array)
    if dtype.kind not in "iu" and boxes > 0:
        raise TypeError(f"{name} must hold integers, got dtype {dtype}")
    numbers: Array = library.table(array, np.dtype(np.int64))
    checked = library.checked_values(numbers)
    if checked is None:
        return _checked_later(library, numbers, "levels", name, maps)
    if checked.size and not 0 <= checked.min() <= checked.max() < maps:
        raise ValueError(
            f"{name} must be from 0 to {maps - 1}, the last map, got values from {checked.min()} "
            f"to {checked.max()}"
        )
    return numbers


def regions(
    rois: Boxes,
    indices: Numbers | None,
    images: int,
    dtype: np.dtype[Any],
    form: Form,
) -> Regions:
    """Return boxes and batch indices: from one table with both, from two, or a table per image."""
    width = len(form.columns)
    if isinstance(rois, (list, tuple)) and _is_one_per_image(rois):
        return _regions_per_image(rois, indices, images, dtype, form)
    both = (width + 1, width) if indices is None else (width, width + 1)
    array = box_table(form.boxes, rois, both)
    if array.shape[1] == width:
        if indices is None:
            raise ValueError(
                f"{form.boxes} of shape {tuple(array.shape)} need {form.indices}; without it "
                f"{form.boxes} must have shape (K, {width + 1}): batch index, "
                f"{', '.join(form.columns)}; for one image give [{form.boxes}]"
            )
        numbers = batch_indices(form.indices, indices, array.shape[0], images)
        return Regions(coordinates(array, dtype), numbers)
    if indices is not None:
        raise ValueError(
            f"{form.boxes} of shape {tuple(array.shape)} hold batch indices already; give "
            f"{form.indices} only with {form.boxes} of shape (K, {width})"
        )
    library = LIBRARY_OF[type(array)] or NUMPY
    if library.dtype(array) == real_dtype(dtype):  # the usual table, at once
        boxes, numbers, row = library.boxes_and_images(array, images)
        if row >= 0:
            _refuse_index(f"{form.boxes}[{row}, 0]", library.host_copy(array[row, 0]), images)
        if numbers is not None:
            return Regions(boxes, numbers)
    numbers = _image_of_each(form.boxes, array[:, 0], images, ", 0")
    return Regions(coordinates(array[:, 1:], dtype), numbers)


def _is_one_per_image(rois: Sequence[Any]) -> bool:
    """Return whether this is a sequence of (L, 4) arrays rather than one nested sequence."""
    if any(rank(item) == 2 for item in rois):
        return True
    return bool(rois) and all(rank(item) == 1 and len(item) == 0 for item in rois)


def rank(item: Any) -> int:
    """Return how deeply sequences are nested, by their first items; 3 for any more than 2."""
    for depth in range(3):
        if is_array(item):
            return depth + int(item.ndim)
        if not isinstance(item, (list, tuple)):
            return depth + int(np.ndim(item))
        if not item:
            return depth + 1
        item = item[0]
    return 3


def _regions_per_image(
    rois: Sequence[Any],
    indices: Numbers | None,
    images: int,
    dtype: np.dtype[Any],
    form: Form,
) -> Regions:
    one_per_image(form, rois, indices, images)
    width = len(form.columns)
    return joined_regions(tables(form.boxes, rois, width), width, dtype)


def one_per_image(
    form: Form, parts: Sequence[Any], indices: Any, images: int, kind: str = "array"
) -> None:
    """Check that there is one table of boxes per image, and no indices beside them."""
    if indices is not None:
        raise ValueError(
            f"{form.indices} must not be given with {form.boxes} as one {kind} per image"
        )
    if len(parts) != images:
        raise ValueError(
            f"{form.boxes} as a sequence must hold one {kind} per image: got {len(parts)} for "
            f"{images}"
        )


def per_bin(
    name: str,
    shape: Sequence[int],
    channels: int,
    boxes: int,
    size: tuple[int, int],
    layout: Layout,
) -> None:
    """Check the shape of an array that holds some numbers for each bin of each box."""
    expected = (boxes, *size, channels) if layout == "NHWC" else (boxes, channels, *size)
    if tuple(shape) != expected:
        raise ValueError(f"{name} must have shape {expected}, got {tuple(shape)}")


def of_bins(
    name: str, values: Any, channels: int, boxes: int, size: tuple[int, int], layout: Layout
) -> Array:
    """Return numbers of each bin of each box, as (K, channels, rows, columns)."""
    array = check.number_array(name, values)
    per_bin(name, array.shape, channels, boxes, size, layout)
    return nchw_view(array) if layout == "NHWC" else array


def weighted(values: Array, weights: Array, out: Array | None = None) -> Any:
    """Return values times weights, in their own type."""
    library = LIBRARY_OF[type(values)] or NUMPY
    with np.errstate(all="ignore"):
        own = library.astype(weights, library.dtype(values))
        return library.xp().multiply(values, own, out)


def with_offsets(offsets: Array, regions: Regions) -> Regions:
    """Return regions whose boxes have the offsets of their bins, NCHW, behind their corners."""
    library = LIBRARY_OF[type(offsets)] or NUMPY
    if library is NUMPY:  # known offsets may stand beside traced boxes
        library = LIBRARY_OF[type(regions.boxes)] or NUMPY
    columns = library.astype(offsets, check.dtype_of(regions.boxes))
    columns = columns.reshape(offsets.shape[0], math.prod(offsets.shape[1:]))
    return regions._replace(boxes=library.xp().concatenate([regions.boxes, columns], axis=1))


def tables(name: str, items: Sequence[Any], columns: int) -> list[Array]:
    """Return the boxes of several images, one table each."""
    return [
        box_table(f"{name}[{image}]", item, (columns,), f"(L, {columns})")
        for image, item in enumerate(items)
    ]


def joined_regions(parts: Sequence[Array], columns: int, dtype: np.dtype[Any]) -> Regions:
    """Return the boxes of several images, one table each, as one table."""
    libraries = [LIBRARY_OF[type(part)] or NUMPY for part in parts]
    library = next((each for each in libraries if each is not NUMPY), NUMPY)  # some may be known
    tables = [coordinates(part, dtype) for part in parts]
    return Regions(*library.concatenate(tables, columns, real_dtype(dtype)))


def _crop_regions(
    boxes: Any, indices: Any, images: int, dtype: np.dtype[Any], form: Form
) -> Regions:
    array = box_table(form.boxes, boxes, (4,), "(K, 4): y1, x1, y2, x2")
    _note_pixels(form.boxes, array)
    numbers = batch_indices(form.indices, indices, array.shape[0], images)
    return Regions(coordinates(swap_xy(array), dtype), numbers)


# What reads a table of a batch index and a box in each row, unless told otherwise: calls with such
# tables can be kept. The options are those of `PreparedCall`.
TABLE_READERS: dict[Any, dict[str, bool]] = {
    regions: {"takes_lists": True},
    _crop_regions: {"are_crops": True},
}


def _note_pixels(name: str, array: Array) -> None:
    """Warn of boxes that are all far outside of their maps: they are pixels, not fractions."""
    checked = (LIBRARY_OF[type(array)] or NUMPY).checked_values(array)
    if checked is None or len(checked) < 2 or not checked[0, 2] > MOST_FRACTION:
        return
    if (checked[:, 2:] > MOST_FRACTION).all():
        warnings.warn(
            f"{name} all end at more than {MOST_FRACTION} times the size of their maps: they "
            "must be fractions y1, x1, y2, x2; roipool.crop takes boxes in pixels",
            UserWarning,
            stacklevel=2,
        )


def swap_xy(boxes: Any) -> Any:
    """Return (K, 4) boxes with the two coordinates of each corner exchanged."""
    return (LIBRARY_OF[type(boxes)] or NUMPY).swapped_pairs(boxes)


def scaled(numbers: Array, scales: Sequence[check.Scale], levels: Any) -> Array:
    """Return corners, or their gradients, times the scales of (rows, columns) of each box's map.

    These are the products that definitions compute, bit for bit. Offsets stay as they are.
    """
    xp = (LIBRARY_OF[type(numbers)] or NUMPY).xp()

    def by(scale: check.Scale) -> Array:
        rows, columns = scale if isinstance(scale, tuple) else (scale, scale)
        corners = [numbers[:, i : i + 1] * (columns, rows)[i % 2] for i in range(4)]
        return xp.concatenate([*corners, numbers[:, 4:]], axis=1)

    with np.errstate(all="ignore"):
        result = by(scales[0])
        for level, scale in enumerate(scales[1:], 1):
            result = xp.where((levels == level)[:, None], by(scale), result)
    return result


class Form(NamedTuple):
    """How a function names its arguments, and how it takes its boxes."""

    # Names of the arguments with one row per box, that name each box's image, and that give the
    # bins of the output.
    boxes: str = "rois"
    indices: str = "batch_indices"
    size: str = "output_size"
    columns: tuple[str, ...] = ("x1", "y1", "x2", "y2")  # the numbers of a box
    # Whether they are parts of the map's sides, rather than image pixels. Then they are y before x,
    # and always have indices of their own.
    is_normalised: bool = False
    # Names of the maps, of the gradient of pooled values, and of the maps' shape.
    features: str = "features"
    grad_output: str = "grad_output"
    input_shape: str = "input_shape"
    # Names of the arguments with the offsets of bins, where bins are moved, and with weights of
    # bins.
    offsets: str | None = None
    mask: str | None = None
    # Returns checked boxes from the arguments `boxes` and `indices`, the number of images, the
    # dtype of the maps, and this form.
    read: Callable[[Any, Any, int, np.dtype[Any], Form], Regions] = regions

    def numbers(self, size: Sequence[int]) -> int:
        """Return how many numbers engines get for a box with so many rows and columns of bins."""
        return len(self.columns) + (0 if self.offsets is None else 2 * math.prod(size))


CORNERS = Form()
VOLUMES = Form(columns=("x1", "y1", "z1", "x2", "y2", "z2"))
DEFORMED = Form(offsets="offsets", mask="mask")
DEFORMED_BY_CLASS = Form(offsets="offsets")
ROTATED = Form(columns=("centre x", "centre y", "width", "height", "angle"))
CROPS = Form(
    "boxes", "box_indices", "crop_size", ("y1", "x1", "y2", "x2"), True, read=_crop_regions
)
