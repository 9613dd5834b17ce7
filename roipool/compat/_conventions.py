"""Conventions shared by several systems, such as boxes with a batch column and scales in C."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from roipool import _arguments as check
from roipool import _boxes, _cpu
from roipool._arrays import LIBRARY_OF, NUMPY, Array, Library
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._errors import shown
from roipool._request import MaxRules, Pooling

# The start of the running maximum of most systems, in all computing types.
FROM_LOWEST_FLOAT32 = MaxRules(lowest=float(np.finfo(np.float32).min))
CELLS_FROM_LOWEST_FLOAT32 = FROM_LOWEST_FLOAT32._replace(argmax_is_cell=True)


# Unlike in the core, the last sample is subject to rounding.
TENSORFLOW_CROPS = {
    "bilinear": Definition("tensorflow_crop_bilinear"),
    "nearest": Definition("tensorflow_crop_nearest"),
}


# Position-sensitive systems without an option for it: each bin is a group of bins.
EACH_BIN = (0, 0)
TORCHVISION_PS_ROI_POOL = Definition("torchvision_ps_roi_pool", group_size=EACH_BIN)
# torchvision's backward is not the derivative: its bins reach the last row and column.
TORCHVISION_PS_ROI_POOL_GRADIENT = Definition("roi_average_pool", group_size=EACH_BIN)


def library_of(array: Array) -> Library:
    """Return the library of a checked array."""
    return LIBRARY_OF[type(array)] or NUMPY


def scalar_of(array: Array) -> Any:
    """Return the type of NumPy's scalars that have the dtype of an array."""
    return check.dtype_of(array).type


def float32_number(name: str, value: Any) -> float:
    """Return a number that the system stores as float32 for all types of features."""
    with np.errstate(over="ignore"):
        number = float(np.float32(check.real_number(name, value)))
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite in float32, got {shown(value)}")
    return number


def float32_share(name: str, value: Any) -> float:
    """Return a number from 0 to 1 that the system stores as float32."""
    number = float32_number(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {shown(value)}")
    return number


def adaptive_if_not_positive(name: str, value: Any) -> tuple[int, int]:
    """Return a sampling ratio, for systems in which any number below 1 is adaptive."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = max(int(value), 0)
    return check.sampling_pair(name, value)


def roi_align_definition(
    scale: float,
    sampling_ratio: Any,
    aligned: Any = False,
    *,
    name: str = "sampling_ratio",
    definition: str = "roi_align",
) -> Definition:
    """Return ROI align of the systems derived from Caffe2; `name` is the ratio's argument."""
    samples = adaptive_if_not_positive(name, sampling_ratio)
    return Definition(definition, scale, samples, check.flag("aligned", aligned))


def precise_definition(spatial_scale: float) -> Definition:
    """Return precise ROI pooling, with a scale that is kept in float32."""
    return Definition("precise_roi_pool", float32_number("spatial_scale", spatial_scale))


def numbered_boxes(
    rois: Any,
    _: None,
    images: int,
    dtype: np.dtype[Any],
    form: Form,
    *,
    unknown_image: Literal["error", "zero"] = "error",
    may_be_negative: bool = True,
) -> Regions:
    """Return boxes of shape (K, 5) or (K, 6), with the batch column truncated to integers as in C.

    A box of an image that does not exist is an error or, depending on the system and always on a
    GPU, where batch indices are not checked, pools to nothing and has no gradient. Unless they
    `may_be_negative`, numbers below 0 that are truncated to 0 are errors, too.
    """
    width = len(form.columns) + 1
    shape = f"(K, {width}): batch index, {', '.join(form.columns)}"
    table = _boxes.box_table(form.boxes, rois, (width,), shape)
    library, indices = LIBRARY_OF[type(table)] or NUMPY, table[:, 0]
    checked = library.checked_values(indices)
    if checked is not None:
        if not may_be_negative and bool((checked < 0).any()):
            row = int((checked < 0).argmax())
            raise ValueError(
                f"{form.boxes}[{row}, 0] is {checked[row]}, but it must not be negative"
            )
        numbers, row = _cpu.whole_numbers(checked, images, True)
        if row >= 0 and unknown_image == "error":
            raise ValueError(
                f"{form.boxes}[{row}, 0] is {checked[row]}, but the batch holds {images} images"
            )
        if checked is indices:
            return Regions(_boxes.coordinates(table[:, 1:], dtype), numbers)
    cut = library.xp().trunc(check.cast(indices, check.FLOAT64))
    return Regions(_boxes.coordinates(table[:, 1:], dtype), cut)


def boxes_of_images(boxes: Any, _: None, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    """Return boxes in torchvision's forms: (K, 5), or a list of (L, 4) for the first images."""
    if isinstance(boxes, (list, tuple)) and any(_boxes.rank(item) == 2 for item in boxes):
        return _regions_per_image(boxes, images, dtype)
    return numbered_boxes(boxes, None, images, dtype, form, may_be_negative=False)


_boxes.TABLE_READERS |= {
    numbered_boxes: {"cuts": True},
    boxes_of_images: {"cuts": True, "takes_lists": True},
}


def _regions_per_image(boxes: Sequence[Any], images: int, dtype: np.dtype[Any]) -> Regions:
    parts = _boxes.tables("boxes", boxes, 4)
    for image, part in enumerate(parts):
        if image >= images and len(part) > 0:
            raise ValueError(f"boxes[{image}] holds boxes, but the batch holds {images} images")
    return _boxes.joined_regions(parts, 4, dtype)


def names_of_maps(featmap_names: Any) -> list[str]:
    """Check and return the names of the maps of torchvision's pooler."""
    names = check.sequence("featmap_names", featmap_names)
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"featmap_names[{i}] must be a str, got {shown(name)}")
    return names


def maps_of_names(argument: str, maps: Any, names: Sequence[str]) -> dict[str, Any]:
    """Select maps, or other values of each map, by name; the keys are names for error messages."""
    if not isinstance(maps, Mapping):
        raise TypeError(f"{argument} must be a dict of maps by name, got {type(maps).__name__}")
    found = {f"{argument}[{name!r}]": one for name, one in maps.items() if name in names}
    if not found:
        raise ValueError(f"{argument} has none of the maps {shown(names)}, but {shown([*maps])}")
    return found


def scales_of_first_call(
    known: list[float] | None, argument: str, heights: Mapping[str, int], image_shapes: Any
) -> list[float]:
    """Return the scales of an argument's maps, computed at the first call as in torchvision.

    They are the powers of two nearest to the maps' heights over the largest image's height.
    """
    scales = known or _scales_of_heights(heights, image_shapes)
    if len(scales) != len(heights):
        raise ValueError(
            f"{argument} must hold {len(scales)} maps, one for each scale, got {len(heights)}"
        )
    return scales


def _scales_of_heights(heights: Mapping[str, int], image_shapes: Any) -> list[float]:
    largest, _ = _largest_sides(image_shapes)
    for name, height in heights.items():
        if height < 1:
            raise ValueError(f"{name} must have one row at least to find its scale, got none")
    return [2.0 ** round(math.log2(height / largest)) for height in heights.values()]


def warn_of_scales(
    scales: Sequence[float], shapes: Mapping[str, Sequence[int]], image_shapes: Any
) -> None:
    """Warn where the width of the first map (N, C, H, W) gives another scale than its height.

    A first picture that is low and wide, and padded to whole strides, makes all later ones wrong.
    Sides of coarser maps have few cells, and are rounded more.
    """
    _, widest = _largest_sides(image_shapes)
    name, (*_, width) = next(iter(shapes.items()))
    by_width = 2.0 ** round(math.log2(width / widest)) if width else scales[0]
    if by_width != scales[0]:
        warnings.warn(
            f"the scale of {name} is {scales[0]:g} by its height, which all later calls use, but "
            f"{by_width:g} by its width: if the maps are padded, give `scales`, or set the "
            "layer's attribute of this name, from the strides of the network",
            UserWarning,
            stacklevel=2,
        )


def _largest_sides(image_shapes: Any) -> tuple[int, int]:
    """Return the largest height and the largest width of pictures."""
    pictures = check.numbered("image_shapes", image_shapes)
    if not pictures:
        raise ValueError("image_shapes must hold one picture at least, got none")
    sides = [check.size_pair(name, shape) for name, shape in pictures.items()]
    return max(height for height, _ in sides), max(width for _, width in sides)


def level_by_logarithm(
    widths: Array,
    heights: Array,
    levels: tuple[int, int],
    canonical: tuple[float, int],
    *,
    add_to_ratio: float = 0.0,
    add_to_level: float = 0.0,
) -> Array:
    """Return the index of each box's map by the frameworks' formula, in the sides' type.

    Parameters
    ----------
    widths, heights : ndarray
        Sides of the boxes, in image pixels, float32 or float64.
    levels : pair of int
        The pyramid's first and last level.
    canonical : (float, int)
        Side and level of a canonical box.
    add_to_ratio, add_to_level : float
        Numbers added to the ratio of sides and to its logarithm, against rounding.
    """
    xp, real = library_of(widths).xp(), scalar_of(widths)
    size, level = canonical
    first, last = levels
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = xp.sqrt(widths * heights) / real(size) + real(add_to_ratio)
        found = xp.floor(xp.log2(ratio) + real(level) + real(add_to_level))
    # Boxes with a negative area, which has no root, or NaN have no map.
    known = xp.where(
        found == found, xp.clip(found, real(first), real(last)) - real(first), -real(1)
    )
    return check.cast(known, check.INT64)


def in_map_cells(boxes: Array, scale: float | Array, aligned: bool) -> Array:
    """Return boxes in map cells, rounded as ROI align's are; the scale may be that of each box."""
    real = scalar_of(boxes)
    with np.errstate(over="ignore", invalid="ignore"):
        return boxes * (real(scale) if isinstance(scale, float) else scale) - real(0.5 * aligned)


def held_at_one_cell(regions: Regions, pooling: Pooling) -> tuple[Regions, Pooling]:
    """Return boxes in map cells and a request that holds their sides, aligned ones' too."""
    definition = pooling.definition
    cells = in_map_cells(regions.boxes, definition.scale, definition.aligned)
    held = definition._replace(scale=1.0, aligned=False)
    return regions._replace(boxes=cells), pooling._replace(definition=held)


def nan_without_samples(pooled: Array, regions: Regions, pooling: Pooling) -> Array:
    """Return averages, NaN where an adaptive grid has no samples: for systems with 0 / 0.

    It has none along a side that is flat, reversed or not finite, unless that is held at one cell.
    """
    definition = pooling.definition
    if definition.sampling != (0, 0):
        return pooled
    height, width = bin_lengths(regions, pooling)
    if definition.aligned:
        return nan_where(~((height > 0) & (width > 0)), pooled)
    return nan_where((height != height) | (width != width), pooled)


def nan_where(boxes: Array, pooled: Array) -> Array:
    """Return pooled values, NaN in those boxes that a mask names."""
    nan = scalar_of(pooled)(math.nan)
    marked: Array = library_of(pooled).xp().where(boxes[:, None, None, None], nan, pooled)
    return marked


def bin_lengths(regions: Regions, pooling: Pooling) -> list[Array]:
    """Return the height and the width of each box's bins in cells; NaN if an end is not finite."""
    definition, lengths = pooling.definition, []
    cells = in_map_cells(regions.boxes, definition.scale, definition.aligned)
    for axis, bins in zip((1, 0), pooling.output_size, strict=True):
        start, end = cells[:, axis], cells[:, axis + 2]
        with np.errstate(over="ignore", invalid="ignore"):
            length = end - start + ((start - start) + (end - end))
            lengths.append(length / scalar_of(length)(bins))
    return lengths


def check_finite(name: str, table: Array) -> None:
    """Check that coordinates are finite, if values are checked."""
    checked = library_of(table).checked_values(table)
    if checked is not None and not np.isfinite(checked).all():
        row = int(np.argwhere(~np.isfinite(checked))[0][0])
        raise ValueError(f"{name} must be finite, got {checked[row]} in row {row}")


def of_no_image(indices: Array, images: int) -> Array:
    """Return a mask of the batch indices of images that do not exist."""
    return ~((indices >= 0) & (indices < images))


def check_bins(
    name: str, gradient: Array, bins: tuple[int, int], argument: str = "output_size"
) -> None:
    """Check that a gradient has the number of bins of an argument or class."""
    if gradient.shape[2:] != bins:
        raise ValueError(
            f"{name} must have {bins[0]} x {bins[1]} bins ({argument}), got shape {gradient.shape}"
        )


def check_output_dim(output_dim: Any, name: str, channels: int, pooling: Pooling) -> None:
    """Check the number of channels of the result, which follows from those of the maps `name`."""
    down, across = pooling.group_size
    expected = channels // (down * across)
    if output_dim != expected:
        raise ValueError(
            f"output_dim must be {expected}, for {channels} channels of {name} in "
            f"{down} x {across} groups, got {shown(output_dim)}"
        )
