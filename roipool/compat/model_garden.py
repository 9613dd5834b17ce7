"""The multilevel crop of TensorFlow's model garden (``official.vision``): NHWC.

The original computes gradients by automatic differentiation; the functions here return the same
derivatives, in which the level of a box counts as a constant. Boxes must be finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from roipool import _arguments as check
from roipool import _boxes, _levels
from roipool._arrays import Array, is_array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._layout import Shape4
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._layers import Layer

__all__ = [
    "MultilevelROIAligner",
    "multilevel_crop_and_resize",
    "multilevel_crop_and_resize_backward",
    "multilevel_crop_and_resize_backward_boxes",
]


def _read_boxes(boxes: Any, indices: Any, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    """Return boxes (N, M, 4), or (K, 4) with the image of each."""
    array = check.number_array(form.boxes, boxes)
    if indices is None:
        if array.ndim != 3 or array.shape[0] != images or array.shape[2] != 4:
            raise ValueError(
                f"{form.boxes} must have shape ({images}, M, 4): y1, x1, y2, x2, for {images} "
                f"images; or (K, 4) with {form.indices}; got {array.shape}"
            )
        xp = conventions.library_of(array).xp()
        indices = xp.arange(images * array.shape[1]) // max(array.shape[1], 1)
        array = array.reshape(-1, 4)
    table = _boxes.box_table(form.boxes, array, (4,), "(K, 4): y1, x1, y2, x2")
    conventions.check_finite(form.boxes, table)
    numbers = _boxes.batch_indices(form.indices, indices, table.shape[0], images)
    return Regions(_boxes.coordinates(_boxes.swap_xy(table), dtype), numbers)


FORM = Form(boxes="boxes", columns=("y1", "x1", "y2", "x2"), read=_read_boxes)


def _definition(sample_offset: float) -> Definition:
    return Definition(
        "garden_crop", offset_factor=check.real_number("sample_offset", sample_offset)
    )


# ---- Levels


class _Pyramid(NamedTuple):
    """The number of the first level, and what is given for each, by its name in error messages."""

    first: int
    given: dict[str, Any]

    def pooling(self, size: tuple[int, int], definition: Definition) -> Pooling:
        """Return the request for these bins."""
        scales = tuple(2.0 ** -(self.first + level) for level in range(len(self.given)))
        return Pooling(definition, size, "NHWC", scales=scales)

    def on_levels(self, regions: Regions) -> Regions:
        """Return boxes with the index of each one's map, by logarithms in float32."""
        boxes, last = regions.boxes, len(self.given) - 1
        xp, single = conventions.library_of(boxes).xp(), np.float32
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            area = (boxes[:, 3] - boxes[:, 1]) * (boxes[:, 2] - boxes[:, 0])
            side = xp.sqrt(check.cast(area, check.FLOAT32)) / single(_levels.USUAL_SIZE)
            level = xp.floor(xp.log(side) / single(math.log(2))) + single(4 - self.first)
        # An area below 0 has no root: its level is the first one.
        index = xp.clip(xp.where(level == level, level, single(0)), single(0), single(last))
        return regions._replace(levels=check.cast(index, check.INT64))

    def extents(self, shapes: Sequence[Shape4]) -> list[tuple[int, int]]:
        """Return the rows and columns that are read of each map: those of the first one, halved.

        A map that has fewer is an error: the original reads other cells instead.
        """
        _, height, width, _ = shapes[0]
        found: list[tuple[int, int]] = []
        for level, (name, shape) in enumerate(zip(self.given, shapes, strict=True)):
            # The original's last cell may be a fraction, which it cuts.
            rows, columns = max(height >> level, min(height, 1)), max(width >> level, min(width, 1))
            if shape[1] < rows or shape[2] < columns:
                raise ValueError(
                    f"{name} must have at least {rows} x {columns} cells, those of the first map "
                    f"halved {level} times, got shape {shape}"
                )
            found.append((rows, columns))
        return found


def _pyramid(argument: str, maps: Any) -> _Pyramid:
    """Return what is given for each level, in order."""
    if not isinstance(maps, Mapping):
        raise TypeError(
            f"{argument} must be a dict by level, such as {{'2': ...}}, got {type(maps).__name__}"
        )
    for name in maps:
        if not isinstance(name, str) or not name.removeprefix("-").isdecimal():
            raise ValueError(f"{argument} must have levels such as '2' for keys, got {shown(name)}")
    names = {_levels.level(f"the level {name!r} of {argument}", int(name)): name for name in maps}
    levels = sorted(names)
    if not levels or levels != [*range(levels[0], levels[0] + len(maps))]:
        raise ValueError(
            f"{argument} must have a map for each level from the first to the last, got "
            f"{shown([*maps])}"
        )
    return _Pyramid(
        levels[0], {f"{argument}[{names[level]!r}]": maps[names[level]] for level in levels}
    )


def _parts(call: Call, maps: Sequence[Array], extents: Sequence[tuple[int, int]]) -> list[Array]:
    """Return the parts of maps that are read."""
    return [
        one
        if one.shape[1:3] == (rows, columns)
        else call.library.readable(one[:, :rows, :columns], check.dtype_of(one))
        for one, (rows, columns) in zip(maps, extents, strict=True)
    ]


def _whole(call: Call, part: Array, shape: Shape4) -> Array:
    """Return the gradient of a map, which is 0 where the map is not read."""
    xp, dtype = call.library.xp(), check.dtype_of(part)
    for axis in (2, 1):
        sizes = list(part.shape)
        sizes[axis] = shape[axis] - part.shape[axis]
        if sizes[axis]:
            part = xp.concatenate([part, xp.zeros(tuple(sizes), dtype)], axis=axis)
    return part


# ---- Images of as many boxes each


class _Rows(NamedTuple):
    """Arrays with a row for each box, from those of as many boxes for each image."""

    images: tuple[int, ...]

    def joined(self, name: str, array: Any) -> Any:
        """Return an array (N, M, ...) as (N * M, ...)."""
        if not self.images or not is_array(array):
            return array
        if array.ndim != 5 or tuple(array.shape[:2]) != self.images:
            raise ValueError(
                f"{name} must have shape (N, M, rows, columns, C) with N={self.images[0]} and "
                f"M={self.images[1]}, got {array.shape}"
            )
        return array.reshape(math.prod(self.images), *array.shape[2:])

    def parted(self, array: Array) -> Array:
        """Return an array (N * M, ...) as (N, M, ...)."""
        return array.reshape(*self.images, *array.shape[1:]) if self.images else array


def _rows(boxes: Any, batch_indices: Any) -> _Rows:
    shape = tuple(np.shape(boxes)) if batch_indices is None else ()
    return _Rows(shape[:2] if len(shape) == 3 else ())


# ---- The functions


@for_every_array
def multilevel_crop_and_resize(
    features: Mapping[str, ArrayT],
    boxes: Any,
    output_size: int | Sequence[int] = 7,
    sample_offset: float = 0.5,
    *,
    batch_indices: Any = None,
) -> ArrayT:
    """Crop boxes from a pyramid as ``multilevel_crop_and_resize`` of the model garden.

    The level of a box is ``4 + floor(log2(side / 224))``, from the first to the last one, where the
    side is the square root of the area.

    Parameters
    ----------
    features : mapping of str to ndarray
        Maps by their levels, such as "2", without gaps; shape (N, H, W, C). A cell of level k is
        2**k image pixels long. Of each map as many rows and columns are read as the first one has,
        halved for each level; it must not have fewer.
    boxes : array_like
        Shape (N, M, 4): for each image as many boxes y1, x1, y2, x2 in image pixels; finite.
    output_size : int or (int, int)
        Bins: rows and columns. The original has squares only.
    sample_offset : float
        Where the one sample of a bin lies: 0 at its first edge, 1 at its last.
    batch_indices : array_like of int, optional
        Shape (K,): the image of each box, for `boxes` of shape (K, 4). The original lacks it.

    Returns
    -------
    ndarray
        Shape (N, M, rows, columns, C), or (K, rows, columns, C) with `batch_indices`.

    See Also
    --------
    roipool.multilevel_roi_align : Several samples per bin, and zeros far outside the map.

    Notes
    -----
    Boxes are not shifted by half a cell. Ahead of the first cell, values are extrapolated from the
    first two cells; behind the last one they are constant. A box with an area below 0, which in
    the original gets its level from an undefined conversion, is on the first level. Where a
    position is not finite, because float32 overflows, the bin is 0. Far behind the last cell the
    original's weights, which add up to 1, cancel with a rounding each.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import model_garden
    >>> fine = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> features = {"4": fine, "5": np.full((1, 2, 2, 1), 50, np.float32)}
    >>> boxes = [[[0, 0, 32, 32], [-32, 0, 0, 32], [0, 0, 448, 448]]]
    >>> model_garden.multilevel_crop_and_resize(features, boxes, 2).reshape(3, 4)
    array([[ 2.5,  3.5,  6.5,  7.5],
           [-5.5, -4.5, -1.5, -0.5],
           [50. , 50. , 50. , 50. ]], dtype=float32)
    """
    pyramid = _pyramid("features", features)
    given = [*pyramid.given.values()]
    with Call(FORM, features=given, boxes=boxes, batch_indices=batch_indices) as call:
        maps = check.pyramid("features", pyramid.given, "NHWC")
        extents = pyramid.extents([one.shape for one in maps])
        size = check.size_pair("output_size", output_size)
        pooling = pyramid.pooling(size, _definition(sample_offset))
        regions = pyramid.on_levels(call.regions(maps[0].shape[0], check.dtype_of(maps[0])))
        pooled = call.average(_parts(call, maps, extents), regions, pooling)
        return _rows(boxes, batch_indices).parted(pooled)


@for_every_array
def multilevel_crop_and_resize_backward(
    grad_output: ArrayT,
    boxes: Any,
    input_shapes: Mapping[str, Sequence[int]],
    sample_offset: float = 0.5,
    *,
    batch_indices: Any = None,
) -> dict[str, ArrayT]:
    """Return the gradients of :func:`multilevel_crop_and_resize` with respect to the maps.

    Parameters
    ----------
    grad_output : ndarray
        Of the shape of the pooled values.
    input_shapes : mapping of str to sequence of int
        (N, H, W, C) of each map, by level.

    Returns
    -------
    dict of str to ndarray
        Gradients with the shapes of the maps, by level.
    """
    pyramid = _pyramid("input_shapes", input_shapes)
    shapes = check.pyramid_shapes("input_shapes", pyramid.given, "NHWC")
    extents = pyramid.extents(shapes)
    joined = _rows(boxes, batch_indices).joined("grad_output", grad_output)
    with Call(FORM, grad_output=joined, boxes=boxes, batch_indices=batch_indices) as call:
        definition = _definition(sample_offset)
        checked = call.checked_gradient("input_shapes", shapes[0], definition, "NHWC")
        gradient, regions, one_map = checked
        pooling = pyramid.pooling(one_map.output_size, definition)
        read = [
            (images, *extent, channels)
            for (images, _, _, channels), extent in zip(shapes, extents, strict=True)
        ]
        regions = pyramid.on_levels(regions)
        found = call.average_backward_of_maps(gradient, regions, pooling, read)
        return {
            str(pyramid.first + level): _whole(call, part, shapes[level])
            for level, part in enumerate(found)
        }


@for_every_array
def multilevel_crop_and_resize_backward_boxes(
    grad_output: ArrayT,
    features: Mapping[str, ArrayT],
    boxes: Any,
    sample_offset: float = 0.5,
    *,
    batch_indices: Any = None,
) -> ArrayT:
    """Return the gradient of :func:`multilevel_crop_and_resize` with respect to the boxes.

    Parameters
    ----------
    grad_output : ndarray
        Of the shape of the pooled values, in the dtype of the maps.

    Returns
    -------
    ndarray
        The shape of `boxes`: with respect to y1, x1, y2, x2; float64 for float64 maps, else
        float32.
    """
    pyramid, rows = _pyramid("features", features), _rows(boxes, batch_indices)
    given, joined = [*pyramid.given.values()], rows.joined("grad_output", grad_output)
    with Call(
        FORM, grad_output=joined, features=given, boxes=boxes, batch_indices=batch_indices
    ) as call:
        maps = check.pyramid("features", pyramid.given, "NHWC")
        extents = pyramid.extents([one.shape for one in maps])
        definition = _definition(sample_offset)
        checked = call.checked_gradient("features", maps[0].shape, definition, "NHWC")
        gradient, regions, one_map = checked
        check.same_dtype("grad_output", gradient, "features", maps[0])
        pooling = pyramid.pooling(one_map.output_size, definition)
        parts, regions = _parts(call, maps, extents), pyramid.on_levels(regions)
        by_corners = call.average_backward_boxes(gradient, parts, regions, pooling)
        return rows.parted(_boxes.swap_xy(by_corners))


@dataclass(eq=False, repr=False)
class MultilevelROIAligner(Layer):
    """``official.vision``'s layer ``MultilevelROIAligner``: :func:`multilevel_crop_and_resize`.

    Parameters
    ----------
    crop_size, sample_offset
        As `output_size` and `sample_offset` of the function.
    """

    crop_size: int | Sequence[int] = 7
    sample_offset: float = 0.5

    def forward(
        self, features: Mapping[str, ArrayT], boxes: Any, *, batch_indices: Any = None
    ) -> ArrayT:
        """Crop `boxes` from `features`."""
        return multilevel_crop_and_resize(
            features, boxes, self.crop_size, self.sample_offset, batch_indices=batch_indices
        )

    if TYPE_CHECKING:
        __call__ = forward

    def backward(
        self,
        grad_output: ArrayT,
        boxes: Any,
        input_shapes: Mapping[str, Sequence[int]],
        *,
        batch_indices: Any = None,
    ) -> dict[str, ArrayT]:
        """Return the gradients with respect to the maps."""
        return multilevel_crop_and_resize_backward(
            grad_output, boxes, input_shapes, self.sample_offset, batch_indices=batch_indices
        )
