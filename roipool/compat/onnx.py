"""ONNX's ``RoiAlign`` (opsets 10, 16 and 22) and ``MaxRoiPool``, as ONNX Runtime computes them.

``CropAndResize`` is an operator of ONNX Runtime, in its domain ``com.microsoft``. ONNX defines no
gradients; the gradients here are the derivatives of the forward. The maximum of RoiAlign ignores
NaN cells. ONNX Runtime ignores them unless the first corner of the bin is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._boxes import CROPS, Form, Regions
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._request import MaxRules
from roipool._types import ArrayT, Method, Mode
from roipool.compat import _conventions as conventions

Coordinates: TypeAlias = Literal["half_pixel", "output_half_pixel"]
_COORDINATES: tuple[Coordinates, ...] = get_args(Coordinates)
_CORNERS = MaxRules(outside_is_zero=True)  # of the four corners of every sample


def _read_boxes(
    rois: Any, batch_indices: Any, images: int, dtype: np.dtype[Any], form: Form
) -> Regions:
    table = check.number_array(form.boxes, rois)
    regions = _boxes.regions(table, batch_indices, images, dtype, form)
    conventions.check_finite(form.boxes, regions.boxes)
    return regions


def _crops(rois: Any, batch_indices: Any, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    regions = CROPS.read(rois, batch_indices, images, dtype, form)
    conventions.check_finite(form.boxes, _boxes.swap_xy(regions.boxes))
    return regions


ALIGN_FORM = Form(size="output_height and output_width", features="X", read=_read_boxes)
POOL_FORM = Form(size="pooled_shape", features="X", read=conventions.numbered_boxes)
CROP_FORM = CROPS._replace(
    boxes="rois", indices="batch_indices", features="X", input_shape="X_shape", read=_crops
)
_CROPS = {"bilinear": Definition("crop_bilinear"), "nearest": Definition("crop_nearest")}


def _align(
    mode: str, sampling_ratio: int, spatial_scale: float, coordinate_transformation_mode: str
) -> Definition:
    coordinates = check.choice(
        "coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES
    )
    names = {"avg": "roi_align", "max": "onnx_roi_align_max"}
    return Definition(
        names[check.choice("mode", mode, tuple(names))],
        conventions.float32_number("spatial_scale", spatial_scale),
        check.sampling_pair("sampling_ratio", sampling_ratio),
        coordinates == "half_pixel",
    )


@for_every_array
def RoiAlign(  # noqa: N802 - ONNX's name
    X: ArrayT,  # noqa: N803
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: Coordinates = "half_pixel",
    mode: Mode = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> ArrayT:
    """ROI align as the ONNX operator.

    Parameters
    ----------
    rois : array_like
        Shape (K, 4): x1, y1, x2, y2 in image pixels; finite.
    coordinate_transformation_mode : {"half_pixel", "output_half_pixel"}
        "half_pixel" shifts by half a cell: the default since opset 16. Opset 22 differs only in
        allowing bfloat16. Opset 10 has no such attribute and computes "output_half_pixel".
    mode : {"avg", "max"}
        "max" is the largest weighted corner (weight times cell) of all samples, rather than the
        largest interpolated sample.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive.

    Returns
    -------
    ndarray
        Shape (K, C, output_height, output_width).

    Notes
    -----
    Cells with a weight of exactly 0 are not read: see :func:`roipool.compat.torchvision.roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import onnx
    >>> X = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> bins = dict(output_height=2, output_width=2, sampling_ratio=2)
    >>> onnx.RoiAlign(X, [[1, 1, 3, 3]], [0], mode="max", **bins)
    array([[[[3.9375, 4.5   ],
             [6.75  , 7.3125]]]], dtype=float32)
    """
    with Call(ALIGN_FORM, X=X, rois=rois, batch_indices=batch_indices) as call:
        placed = _align(mode, sampling_ratio, spatial_scale, coordinate_transformation_mode)
        size = output_height, output_width
        maps, regions, pooling = call.checked_forward(placed, size, rules=_CORNERS)
        if mode == "avg":
            return call.average([maps], regions, pooling)
        return call.maximum(maps, regions, pooling, return_argmax=False)[0]


@for_every_array
def RoiAlign_backward(  # noqa: N802
    grad_output: ArrayT,
    X: ArrayT,  # noqa: N803
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: Coordinates = "half_pixel",
    mode: Mode = "avg",
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> ArrayT:
    """Return the gradient of :func:`RoiAlign` with respect to `X`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, output_height, output_width), in X's dtype.

    Returns
    -------
    ndarray
        X's shape.
    """
    with Call(
        ALIGN_FORM, grad_output=grad_output, X=X, rois=rois, batch_indices=batch_indices
    ) as call:
        placed = _align(mode, sampling_ratio, spatial_scale, coordinate_transformation_mode)
        checked = call.checked_backward_boxes(placed, rules=_CORNERS)
        gradient, (maps,), regions, pooling = checked
        if mode == "avg":
            return call.average_backward(gradient, regions, pooling, maps.shape)
        _, argmax = call.maximum(maps, regions, pooling)
        return call.maximum_backward(gradient, argmax, regions, pooling, maps.shape)


@for_every_array
def MaxRoiPool(  # noqa: N802
    X: ArrayT,  # noqa: N803
    rois: Any,
    pooled_shape: Sequence[int],
    spatial_scale: float = 1.0,
) -> ArrayT:
    """Max ROI pooling as the ONNX operator.

    As in ONNX Runtime, a NaN resets the maximum: the value of a bin is the maximum of the cells
    after its last NaN, and NaN only if the last cell is NaN.

    Parameters
    ----------
    spatial_scale : float
        Map cells per image pixel, above 0, kept in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import onnx
    >>> X = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> onnx.MaxRoiPool(X, [[0, 1, 1, 3, 3]], (2, 2))
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    with Call(POOL_FORM, X=X, rois=rois) as call:
        checked = call.checked_forward(_max_roi_pool(spatial_scale), pooled_shape)
        maps, regions, pooling = checked
        pooling = pooling._replace(rules=_rules(check.dtype_of(maps)))
        return call.maximum(maps, regions, pooling, return_argmax=False)[0]


def _max_roi_pool(spatial_scale: float) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    if scale <= 0:
        raise ValueError(f"spatial_scale must be above 0, got {spatial_scale}")
    return Definition("roi_pool", scale)


def _rules(dtype: np.dtype[Any]) -> MaxRules:
    lowest = float(np.finfo(real_dtype(dtype)).min)
    return MaxRules(lowest=lowest, argmax_is_cell=True, nan_restarts=True)


@for_every_array
def MaxRoiPool_backward(  # noqa: N802
    grad_output: ArrayT,
    X: ArrayT,  # noqa: N803
    rois: Any,
    spatial_scale: float = 1.0,
) -> ArrayT:
    """Return the gradient of :func:`MaxRoiPool` with respect to `X`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in X's dtype.

    Returns
    -------
    ndarray
        X's shape.
    """
    with Call(POOL_FORM, grad_output=grad_output, X=X, rois=rois) as call:
        checked = call.checked_backward_boxes(_max_roi_pool(spatial_scale))
        gradient, (maps,), regions, pooling = checked
        pooling = pooling._replace(rules=_rules(check.dtype_of(maps)))
        _, argmax = call.maximum(maps, regions, pooling)
        return call.maximum_backward(gradient, argmax, regions, pooling, maps.shape)


@for_every_array
def CropAndResize(  # noqa: N802 - ONNX Runtime's name
    X: ArrayT,  # noqa: N803
    rois: Any,
    batch_indices: Any,
    crop_size: Sequence[int],
    *,
    mode: Method = "bilinear",
    extrapolation_value: float = 0.0,
) -> ArrayT:
    """Crops as the operator ``com.microsoft.CropAndResize`` of ONNX Runtime.

    Parameters
    ----------
    rois : array_like
        Shape (K, 4): y1, x1, y2, x2 as fractions of the map, where 1 is the last cell; finite.
    crop_size : (int, int)
        Rows and columns of the crops.
    mode : {"bilinear", "nearest"}
        Interpolation method; halves are rounded away from zero.
    extrapolation_value : float
        Value outside the map.

    Notes
    -----
    ONNX Runtime interpolates by differences, ``a + (b - a) * w``: beside a cell that is much larger
    the digits of the other cancel, and two infinite cells give NaN. Here cells are multiplied by
    their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import onnx
    >>> X = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> onnx.CropAndResize(X, [[0.25, 0.25, 0.75, 0.75]], [0], (2, 2))
    array([[[[ 7.,  9.],
             [17., 19.]]]], dtype=float32)
    """
    with Call(CROP_FORM, X=X, rois=rois, batch_indices=batch_indices) as call:
        placed = _CROPS[check.choice("mode", mode, tuple(_CROPS))]
        outside = check.any_float("extrapolation_value", extrapolation_value)
        return call.averages(call.request(placed, crop_size, empty_value=outside))


@for_every_array
def CropAndResize_backward(  # noqa: N802
    grad_output: ArrayT,
    rois: Any,
    batch_indices: Any,
    X_shape: Sequence[int],  # noqa: N803
    *,
    mode: Method = "bilinear",
) -> ArrayT:
    """Return the gradient of :func:`CropAndResize` with respect to `X`.

    Parameters
    ----------
    X_shape : sequence of int
        (N, C, H, W).
    """
    with Call(CROP_FORM, grad_output=grad_output, rois=rois, batch_indices=batch_indices) as call:
        placed = _CROPS[check.choice("mode", mode, tuple(_CROPS))]
        return call.average_backward(*call.checked_backward(placed, X_shape))
