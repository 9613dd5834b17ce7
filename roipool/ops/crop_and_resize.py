"""Crop and resize: one interpolated sample or filtered mean per cell, corners on corners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool import _boxes
from roipool._boxes import CROPS
from roipool._definitions import Definition
from roipool._dtypes import FLOATS_AND_INTEGERS
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._types import AnyArray, ArrayT, Border, Integers, Method, Numbers, PooledDType

METHODS: dict[Method, Definition] = {
    "bilinear": Definition("crop_bilinear"),
    "nearest": Definition("crop_nearest"),
}
ANTIALIAS = Definition("crop_antialias")


def definition(method: str, antialias: bool, border: str) -> Definition:
    """Return the definition with these options, checked."""
    placed = METHODS[check.choice("method", method, tuple(METHODS))]
    if check.flag("antialias", antialias):
        if method != "bilinear":
            raise ValueError(f"antialias must be False with method={method!r}, got True")
        placed = ANTIALIAS
    return placed._replace(aligned=check.choice("border", border, get_args(Border)) == "edge")


@overload
def crop_and_resize(
    features: Integers,
    boxes: Numbers,
    box_indices: Numbers,
    crop_size: int | Sequence[int],
    *,
    method: Method = ...,
    antialias: bool = ...,
    border: Border = ...,
    extrapolation_value: float = ...,
    layout: Layout = ...,
    dtype: None = ...,
    out: NDArray[np.float32] | None = ...,
) -> NDArray[np.float32]: ...
@overload
def crop_and_resize(
    features: Integers,
    boxes: Numbers,
    box_indices: Numbers,
    crop_size: int | Sequence[int],
    *,
    method: Method = ...,
    antialias: bool = ...,
    border: Border = ...,
    extrapolation_value: float = ...,
    layout: Layout = ...,
    dtype: PooledDType,
    out: NDArray[Any] | None = ...,
) -> Any: ...
@overload
def crop_and_resize(
    features: ArrayT,
    boxes: Numbers,
    box_indices: Numbers,
    crop_size: int | Sequence[int],
    *,
    method: Method = ...,
    antialias: bool = ...,
    border: Border = ...,
    extrapolation_value: float = ...,
    layout: Layout = ...,
    dtype: PooledDType | None = ...,
    out: ArrayT | None = ...,
) -> ArrayT: ...
@by_front_end
def crop_and_resize(
    features: ArrayT,
    boxes: Numbers,
    box_indices: Numbers,
    crop_size: int | Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    border: Border = "constant",
    extrapolation_value: float = 0.0,
    layout: Layout = "NCHW",
    dtype: PooledDType | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Cut each box out of its map and resize it to a fixed grid.

    The first and last output cells are exactly on the edges of the box; a single cell is midway
    between them. Coordinates 0 and 1 are the centres of the first and last map cells. A reversed
    box gives a mirrored crop.

    Parameters
    ----------
    boxes : array_like
        Shape (K, 4), rows y1, x1, y2, x2 as fractions: 0 is the centre of the first cell of the
        map, 1 that of the last. They may be outside this range.
    box_indices : array_like of int
        Shape (K,): the image index of each box.
    crop_size : int or pair of int
        Cells of the output, (rows, columns); one int sets both.
    method : {"bilinear", "nearest"}
        The interpolation; nearest rounds half away from zero.
    antialias : bool
        Whether crops that make smaller read all cells: along each axis an output cell is the mean
        of the cells around its position, weighted by a triangle that falls to 0 at the positions
        of its neighbours. Only for bilinear crops. An axis that is not made smaller is
        interpolated as without it.
    border : {"constant", "edge"}
        The value of output cells outside the map: `extrapolation_value`, or that of the cell at
        the edge of the map; "edge" for crops of pictures, see Notes.
    extrapolation_value : float
        Value of output cells outside the map with ``border="constant"``, and of those at NaN or
        infinite coordinates.
    out : ndarray, optional
        Array for the crops, with the shape and dtype of the result.
    features
        As in :func:`roi_align`.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype,
        or float32 for integers, or `dtype`.

    See Also
    --------
    crop_and_resize_backward, crop_and_resize_backward_boxes : The gradients.
    roi_align : Averages over each bin.
    roipool.compat.tensorflow.crop_and_resize : With TensorFlow's names and defaults.

    Notes
    -----
    Output cells at NaN or infinite coordinates get `extrapolation_value`. Definition: TensorFlow's
    ``tf.image.crop_and_resize``, except that the last row and column of cells are exactly on the
    edge of the box, as in OpenVINO's bilinear ROIPooling and ONNX Runtime's CropAndResize.
    TensorFlow computes these positions with rounding, so the last cell can be slightly off the
    edge. For some boxes that end at 0 or 1, it is then outside the map and gets the extrapolation
    value. ``roipool.compat.tensorflow`` reproduces this.

    With ``antialias=True`` and ``border="edge"``, crops are those of Pillow's ``resize`` with
    ``BILINEAR`` and torchvision's ``resize`` with ``antialias=True``: weights of cells inside the
    map sum to 1. Those name a box by the edges of its first and last pixels, so that its positions
    are half a step inside it: the crop of columns a to b of a picture W wide in n pixels is that of
    the fractions ``(a + s - 0.5) / (W - 1)`` and ``(b - s - 0.5) / (W - 1)``, where
    ``s = (b - a) / (2 * n)``. Where a box at the edge of the picture is made larger, these are up
    to half a pixel outside the centres of the outermost pixels, and ``border="constant"`` would
    frame the crop with `extrapolation_value`.

    The triangle of a single output cell along an axis is as wide as the box to either side. With
    ``border="edge"``, a triangle outside the map that reaches some of its cells is their weighted
    mean. Coordinates whose distance overflows get `extrapolation_value`.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> roipool.crop_and_resize(features, [[0, 0, 1, 1]], [0], crop_size=2)
    array([[[[0., 2.],
             [6., 8.]]]], dtype=float32)

    A row of stripes, made half as long: samples miss all the bright ones.

    >>> stripes = np.array([[[[0, 8, 0, 8, 0, 8, 0, 8, 0]]]], np.uint8)
    >>> roipool.crop_and_resize(stripes, [[0, 0, 0, 1]], [0], (1, 5))
    array([[[[0., 0., 0., 0., 0.]]]], dtype=float32)
    >>> roipool.crop_and_resize(stripes, [[0, 0, 0, 1]], [0], (1, 5), antialias=True).round(2)
    array([[[[2.67, 4.  , 4.  , 4.  , 2.67]]]], dtype=float32)

    The same as a picture.

    >>> roipool.crop_and_resize(
    ...     stripes, [[0, 0, 0, 1]], [0], (1, 5), antialias=True, dtype=np.uint8)
    array([[[[3, 4, 4, 4, 3]]]], dtype=uint8)

    Two pixels, made twice as long as Pillow does: the outer positions are outside their centres.

    >>> two = np.array([[[[10.0, 20.0]]]])
    >>> roipool.crop_and_resize(two, [[0, -0.25, 0, 1.25]], [0], (1, 4), border="edge")
    array([[[[10. , 12.5, 17.5, 20. ]]]])
    """
    with Call(CROPS, features=features, boxes=boxes, box_indices=box_indices, out=out) as call:
        filling = check.any_float("extrapolation_value", extrapolation_value)
        placed = definition(method, antialias, border)
        pooling = call.request(placed, crop_size, layout, filling)
        return call.averages(pooling, FLOATS_AND_INTEGERS, dtype)


@by_front_end
def crop_and_resize_backward(
    grad_output: ArrayT,
    boxes: Numbers,
    box_indices: Numbers,
    input_shape: Sequence[int],
    *,
    method: Method = "bilinear",
    antialias: bool = False,
    border: Border = "constant",
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`crop_and_resize` with respect to the features.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the crops, shape (K, C, rows, columns) or (K, rows, columns, C); float16,
        bfloat16, float32 or float64.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 1), np.float32)
    >>> roipool.crop_and_resize_backward(grad_output, [[0, 0, 1, 1]], [0], (1, 1, 2, 2))
    array([[[[0.25, 0.25],
             [0.25, 0.25]]]], dtype=float32)
    """
    with Call(
        CROPS, grad_output=grad_output, boxes=boxes, box_indices=box_indices, out=out
    ) as call:
        checked = call.checked_backward(definition(method, antialias, border), input_shape, layout)
        return call.average_backward(*checked)


@overload
def crop_and_resize_backward_boxes(
    grad_output: NDArray[Any],
    features: AnyArray,
    boxes: Numbers,
    box_indices: Numbers,
    *,
    antialias: bool = ...,
    border: Border = ...,
    layout: Layout = ...,
) -> NDArray[np.floating[Any]]: ...
@overload
def crop_and_resize_backward_boxes(
    grad_output: ArrayT,
    features: AnyArray,
    boxes: Numbers,
    box_indices: Numbers,
    *,
    antialias: bool = ...,
    border: Border = ...,
    layout: Layout = ...,
) -> ArrayT: ...
@by_front_end
def crop_and_resize_backward_boxes(
    grad_output: ArrayT,
    features: AnyArray,
    boxes: Numbers,
    box_indices: Numbers,
    *,
    antialias: bool = False,
    border: Border = "constant",
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of bilinear :func:`crop_and_resize` with respect to the boxes.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the crops, shape (K, C, rows, columns) or (K, rows, columns, C).
    features : ndarray
        The maps, in grad_output's dtype.

    Returns
    -------
    ndarray
        Shape (K, 4): the gradient by y1, x1, y2, x2; float64 for float64 maps, else float32.
        Cells outside the map, and positions on a map cell along that axis, give none; with
        `antialias` the latter is the derivative at the middle of the kink.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.tile(np.arange(4.0), (1, 1, 4, 1))  # rises by 1 per column
    >>> roipool.crop_and_resize_backward_boxes(
    ...     np.ones((1, 1, 1, 1)), features, [[0.0, 0.0, 1.0, 1.0]], [0])
    array([[0. , 1.5, 0. , 1.5]])
    """
    with Call(
        CROPS, grad_output=grad_output, features=features, boxes=boxes, box_indices=box_indices
    ) as call:
        checked = call.checked_backward_boxes(definition("bilinear", antialias, border), layout)
        return _boxes.swap_xy(call.average_backward_boxes(*checked))
