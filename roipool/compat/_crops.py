"""TensorFlow's crop_and_resize for either layout: what two systems share.

It differs from :func:`roipool.crop_and_resize` in its definitions only: the last output cell of a
box lies where rounding puts it. Arguments and errors are those of the core's functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from roipool import _arguments as check
from roipool._arguments import Array
from roipool._arrays import reversed_pairs
from roipool._backend import backend_of
from roipool._geometry import Geometry
from roipool._threads import threads_for_call
from roipool.compat import _steps as steps

_METHODS = {
    "bilinear": Geometry("tensorflow_crop_bilinear"),
    "nearest": Geometry("tensorflow_crop_nearest"),
}
_BOX_GRADIENT = Geometry("tensorflow_crop_gradient")


def crop_and_resize(
    features: Array,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    crop_size: int | Sequence[int],
    *,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    layout: str = "NCHW",
) -> Array:
    """Crop and resize."""
    backend_of(features=features, boxes=boxes, box_indices=box_indices)
    order = check.check_layout(layout)
    maps = check.features("features", features, order)
    size = check.size_pair("crop_size", crop_size)
    value = check.extrapolation(extrapolation_value)
    regions = check.crop_regions(boxes, box_indices, maps.shape[0], maps.dtype)
    return steps.pool_average(
        maps, regions, _METHODS[method], size, layout=order, empty_value=value
    )


def crop_and_resize_backward(
    grad_output: Array,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    input_shape: Sequence[int],
    *,
    method: str = "bilinear",
    layout: str = "NCHW",
) -> Array:
    """Return the gradient by the maps."""
    backend_of(grad_output=grad_output, boxes=boxes, box_indices=box_indices)
    order = check.check_layout(layout)
    gradient = check.float_array("grad_output", grad_output)
    shape = check.map_shape("input_shape", input_shape, order)
    regions = check.crop_regions(boxes, box_indices, shape[0], gradient.dtype)
    return steps.spread_average(gradient, regions, _METHODS[method], shape, layout=order)


def crop_and_resize_backward_boxes(
    grad_output: Array,
    features: Array,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    *,
    layout: str = "NCHW",
) -> Array:
    """Return the gradient by the boxes."""
    backend = backend_of(
        grad_output=grad_output, features=features, boxes=boxes, box_indices=box_indices
    )
    order = check.check_layout(layout)
    gradient = check.float_array("grad_output", grad_output)
    maps = check.features("features", features, order)
    check.same_dtype(gradient, maps)
    regions = check.crop_regions(boxes, box_indices, maps.shape[0], maps.dtype)
    check.match_gradient(gradient, len(regions.boxes), maps.shape, order)
    by_corner = backend.average_backward_boxes(
        gradient, maps, *regions, _BOX_GRADIENT, layout=order, threads=threads_for_call()
    )
    return reversed_pairs(by_corner)
