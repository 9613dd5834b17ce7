"""TensorFlow's ``crop_and_resize`` and its two gradients: NHWC, float32 results.

TensorFlow's CPU kernels sum gradients of overlapping boxes in no fixed order; here the order is
that of the boxes. Gradients for float16 and float64 images are summed in float32 and converted
once.

Unlike in :func:`roipool.crop_and_resize`, rounding can move the last row or column of a box that
ends at 0 or 1 outside the image; in the gradient of the boxes it may be on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array, is_array
from roipool._definitions import Definition
from roipool._dtypes import FLOATS_AND_INTEGERS, INTEGERS, dtype_name
from roipool._errors import shortened, shown
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import ArrayT, Method
from roipool.compat import _conventions as conventions
from roipool.compat._conventions import TENSORFLOW_CROPS

_FORM = _boxes.CROPS._replace(features="image")
_BOX_GRADIENT = Definition("tensorflow_crop_gradient")
_GRADIENT_TYPES = ("float16", "float32", "float64")


def _in_float32(name: str, array: Any, *, keeps_integers: bool = False) -> Array:
    """Convert any real array to float32, as TensorFlow converts pixels before interpolation.

    Engines can also convert small integers, pixel by pixel.
    """
    if not is_array(array):
        raise TypeError(f"{name} must be a NumPy or CuPy array, got {type(array).__name__}")
    dtype = check.dtype_of(array)
    if dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {shortened(str(dtype))}")
    if keeps_integers and dtype_name(dtype) in INTEGERS:
        return array
    return check.cast(array, check.FLOAT32)


def _definition(method: str) -> Definition:
    return TENSORFLOW_CROPS[check.choice("method", method, tuple(TENSORFLOW_CROPS))]


@for_every_array
@publishes_gradient(fixed={"crop_and_resize_backward_boxes": {"method": "bilinear"}})
def crop_and_resize(
    image: ArrayT,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    crop_size: int | Sequence[int],
    method: Method = "bilinear",
    extrapolation_value: float = 0.0,
) -> ArrayT:
    """Crop and resize like ``tf.image.crop_and_resize``.

    Parameters
    ----------
    image : ndarray
        Shape (N, H, W, C), any real dtype.
    boxes : array_like
        Shape (K, 4), rows y1, x1, y2, x2 as fractions of the image; finite.
    box_indices : array_like of int
        Shape (K,): the image of each box.
    crop_size : (int, int)
        Rows and columns of the crops.
    method : {"bilinear", "nearest"}
        Interpolation method.
    extrapolation_value : float
        Value outside the image.

    Returns
    -------
    ndarray of float32
        Shape (K, rows, columns, C).

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import tensorflow
    >>> image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
    >>> tensorflow.crop_and_resize(image, [[0, 0, 1, 1]], [0], (2, 2))[..., 0]
    array([[[0., 2.],
            [6., 8.]]], dtype=float32)
    """
    with Call(_FORM, image=image, boxes=boxes, box_indices=box_indices) as call:
        pixels = _in_float32("image", image, keeps_integers=True)
        maps = check.float_array("image", pixels, FLOATS_AND_INTEGERS, layout="NHWC")
        pooling = Pooling(
            _definition(method),
            check.size_pair("crop_size", crop_size),
            "NHWC",
            check.any_float("extrapolation_value", extrapolation_value),
        )
        regions = call.regions(maps.shape[0], check.dtype_of(maps))
        conventions.check_finite("boxes", _boxes.swap_xy(regions.boxes))
        return call.average([maps], regions, pooling)


@for_every_array
def crop_and_resize_backward(
    grads: ArrayT,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    image_size: Sequence[int],
    T: DTypeLike = np.float32,  # noqa: N803 - TensorFlow's name
    method: Method = "bilinear",
) -> ArrayT:
    """Return the gradient with respect to the image, like ``tf.raw_ops.CropAndResizeGradImage``.

    Parameters
    ----------
    grads : ndarray of float32
        Shape (K, rows, columns, C).
    image_size : sequence of int
        (N, H, W, C).
    T : dtype
        float16, float32 or float64: type of the result.
    """
    try:
        dtype = np.dtype(T)
    except TypeError:
        raise TypeError(f"T must be float16, float32 or float64, got {shown(T)}") from None
    if dtype.name not in _GRADIENT_TYPES:
        raise TypeError(f"T must be float16, float32 or float64, got {shortened(str(dtype))}")
    with Call(_boxes.CROPS, grads=grads, boxes=boxes, box_indices=box_indices) as call:
        gradient = check.float_array("grads", _in_float32("grads", grads))
        shape = check.map_shape("image_size", image_size, "NHWC")
        definition = _definition(method)
        regions = call.regions(shape[0], check.dtype_of(gradient))
        size = check.grad_output("grads", gradient, regions.boxes.shape[0], shape, "NHWC")
        result = call.average_backward(gradient, regions, Pooling(definition, size, "NHWC"), shape)
        return check.cast(result, dtype)


@for_every_array
def crop_and_resize_backward_boxes(
    grads: ArrayT,
    image: ArrayT,
    boxes: ArrayLike,
    box_indices: ArrayLike,
    method: Method = "bilinear",
) -> ArrayT:
    """Return the gradient with respect to the boxes, like ``tf.raw_ops.CropAndResizeGradBoxes``.

    Parameters
    ----------
    grads : ndarray of float32
        Shape (K, rows, columns, C).
    method : {"bilinear"}
        TensorFlow uses the bilinear gradient also for ``method="nearest"`` crops.

    Returns
    -------
    ndarray of float32
        Shape (K, 4): with respect to y1, x1, y2, x2.
    """
    check.choice("method", method, ("bilinear",))
    with Call(_boxes.CROPS, grads=grads, image=image, boxes=boxes, box_indices=box_indices) as call:
        gradient = check.float_array("grads", _in_float32("grads", grads))
        maps = check.float_array("image", _in_float32("image", image), layout="NHWC")
        regions = call.regions(maps.shape[0], check.dtype_of(maps))
        size = check.grad_output("grads", gradient, regions.boxes.shape[0], maps.shape, "NHWC")
        pooling = Pooling(_BOX_GRADIENT, size, "NHWC")
        return _boxes.swap_xy(call.average_backward_boxes(gradient, [maps], regions, pooling))
