"""ROI align: bilinear samples in each bin, averaged or maximised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._dtypes import FLOATS_AND_INTEGERS
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._request import MaxRules
from roipool._types import AnyArray, ArrayT, Boxes, Integers, Mode, Numbers, PooledDType, ScalarT

MODES: tuple[Mode, ...] = get_args(Mode)
# A sample outside the map takes part in a maximum, as in mmcv.
RULES = MaxRules(outside_is_zero=True)


def definition(
    spatial_scale: float | Sequence[float], sampling_ratio: int | Sequence[int], aligned: bool
) -> Definition:
    """Return the definition with these options, checked."""
    return Definition(
        "roi_align",
        check.map_scale("spatial_scale", spatial_scale),
        check.sampling_pair("sampling_ratio", sampling_ratio),
        check.flag("aligned", aligned),
    )


@overload
def roi_align(
    features: Integers,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    mode: Mode = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[False] = ...,
    dtype: None = ...,
    out: NDArray[np.float32] | None = ...,
) -> NDArray[np.float32]: ...
@overload
def roi_align(
    features: Integers,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    mode: Mode = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: bool = ...,
    dtype: PooledDType,
    out: NDArray[Any] | None = ...,
) -> Any: ...
@overload
def roi_align(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    mode: Mode = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[False] = ...,
    dtype: PooledDType | None = ...,
    out: ArrayT | None = ...,
) -> ArrayT: ...
@overload
def roi_align(
    features: Integers,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    mode: Mode = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[True],
    dtype: None = ...,
    out: NDArray[np.float32] | None = ...,
) -> tuple[NDArray[np.float32], NDArray[np.signedinteger[Any]]]: ...
@overload
def roi_align(
    features: NDArray[ScalarT],
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    mode: Mode = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[True],
    dtype: PooledDType | None = ...,
    out: NDArray[ScalarT] | None = ...,
) -> tuple[NDArray[ScalarT], NDArray[np.signedinteger[Any]]]: ...
@overload
def roi_align(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    mode: Mode = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[True],
    dtype: PooledDType | None = ...,
    out: ArrayT | None = ...,
) -> tuple[ArrayT, ArrayT]: ...
@by_front_end
def roi_align(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    return_argmax: bool = False,
    dtype: PooledDType | None = None,
    out: ArrayT | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Pool each box to a fixed grid from bilinear samples, without rounding the box.

    Each bin has a regular grid of samples, and each sample interpolates between the four nearest
    map cells. Up to one cell outside the map, samples read the border cells; beyond that, they
    are 0.

    Parameters
    ----------
    features : ndarray
        Maps, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, H, W) or, with
        ``layout="NHWC"``, (N, H, W, C); float16, bfloat16, float32 or float64; or pictures and
        scans of uint8, int8, uint16, int16 or bool, which are pooled to float32 or `dtype`.
    rois : array_like
        Boxes in image pixels: shape (K, 5) with rows batch index, x1, y1, x2, y2; or (K, 4) with
        rows x1, y1, x2, y2 and `batch_indices`; or a sequence of N arrays of shape (L, 4), one
        per image.
    output_size : int or pair of int
        Bins of the output, (rows, columns); one int sets both.
    spatial_scale : float or pair of float
        Map cells per image pixel, for example 1/16; a pair has the scales of (rows, columns).
    sampling_ratio : int or pair of int
        Samples per bin, (vertical, horizontal), up to 32768; 0 is adaptive: as many as the bin is
        long in map cells, rounded up, but at most 2**22.
    aligned : bool
        Shift boxes by half a cell, so that a scaled box from 0 to 1 covers cell 0, as in
        detectron2. False is the older convention, in which boxes are at least one cell long.
    mode : {"avg", "max"}
        Average or maximum of the samples of a bin.
    batch_indices : array_like of int, optional
        Shape (K,): the image index of each box, for `rois` of shape (K, 4).
    layout : {"NCHW", "NHWC"}
        Order of the axes of `features` and of the result.
    return_argmax : bool
        With ``mode="max"``: also return the argmax, which the backward needs.
    dtype : str or dtype, optional
        Output dtype of integer features: float16, bfloat16, float32 (the default), float64, or
        the features' own. Values are computed in float32; integers are then rounded half to even,
        and limited to what they can hold, with 0 for NaN. Other features have only their own.
    out : ndarray, optional
        Array for the pooled values, with the shape and dtype of the result.

    Returns
    -------
    pooled : ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype,
        or float32 for integers, or `dtype`.
        A bin without samples (an empty box with an adaptive grid) is 0. A maximum ignores NaN
        samples; a bin with only NaN samples is -inf.
    argmax : ndarray of int32
        Only with `return_argmax`. Same shape: the index of the largest sample in the grid of the
        bin, counted row by row; the first of equal samples; -1 for a bin without samples or with
        only NaN. int64 if an adaptive grid has more than 2**31 - 1 samples (or could have, for
        CuPy arrays, whose boxes are not read).

    Raises
    ------
    ValueError
        If `return_argmax` is given for an average.

    See Also
    --------
    roi_align_backward, roi_align_backward_rois : The gradients.
    multilevel_roi_align : ROI align on a feature pyramid.
    roi_align_rotated : ROI align of rotated boxes.
    precise_roi_pool : The exact mean, without samples.
    roipool.compat.torchvision.roi_align : The function with torchvision's results.

    Notes
    -----
    Samples at NaN or infinite coordinates are outside the map. A reversed side (x2 < x1 or
    y2 < y1) is mirrored with a fixed `sampling_ratio`, as in torchvision, and makes the box 0 with
    an adaptive one; if not `aligned`, it is one cell long. With ``mode="max"``, a sample outside
    the map counts as 0, as in mmcv. float16 and bfloat16 maps are computed in float32 and rounded
    once. Definition: He et al., "Mask R-CNN" (2017), as in Caffe2, torchvision, mmcv, detectron2
    and ONNX.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> roipool.roi_align(features, [[0, 1, 1, 3, 3]], output_size=2, sampling_ratio=2)
    array([[[[ 7.,  8.],
             [12., 13.]]]], dtype=float32)
    """
    with Call(features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned)
        is_average = check.choice("mode", mode, MODES) == "avg"
        want_argmax = check.flag("return_argmax", return_argmax)
        if is_average and want_argmax:
            raise ValueError("return_argmax must be False with mode='avg': an average has none")
        pooling = call.request(placed, output_size, layout, rules=RULES)
        if is_average:
            return call.averages(pooling, FLOATS_AND_INTEGERS, dtype)
        return call.maxima(pooling, FLOATS_AND_INTEGERS, dtype, return_argmax=want_argmax)


@by_front_end
def roi_align_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    mode: Mode = "avg",
    argmax: AnyArray | None = None,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` with respect to the features.

    This is the transpose of the forward. The average is linear in the features, so the gradient of
    this function with respect to `grad_output` is :func:`roi_align` itself.

    Parameters
    ----------
    argmax : ndarray of int, optional
        With ``mode="max"``: the argmax that :func:`roi_align` returned.

    Raises
    ------
    TypeError, ValueError
        If `argmax` is missing with ``mode="max"``, is given for an average, or is out of range for
        its bin.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 1), np.float32)
    >>> roipool.roi_align_backward(grad_output, [[0, 1, 1, 2, 2]], (1, 1, 3, 3), aligned=False)
    array([[[[0.  , 0.  , 0.  ],
             [0.  , 0.25, 0.25],
             [0.  , 0.25, 0.25]]]], dtype=float32)
    """
    with Call(
        grad_output=grad_output, argmax=argmax, rois=rois, batch_indices=batch_indices, out=out
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned)
        is_average = check.choice("mode", mode, MODES) == "avg"
        if is_average and argmax is not None:
            raise ValueError("argmax must not be given with mode='avg': an average has none")
        if not is_average and argmax is None:
            raise TypeError("argmax must be given with mode='max': roi_align returns it")
        gradient, regions, pooling, shape = call.checked_backward(
            placed, input_shape, layout, RULES
        )
        if is_average:
            return call.average_backward(gradient, regions, pooling, shape)
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)


@overload
def roi_align_backward_rois(
    grad_output: NDArray[Any],
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> NDArray[np.floating[Any]]: ...
@overload
def roi_align_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> ArrayT: ...
@by_front_end
def roi_align_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of averaging :func:`roi_align` with respect to the boxes.

    It is the derivative of each interpolated sample by its position, times the derivative of the
    position by the corners of the box. An adaptive number of samples counts as constant, and so
    does a side that is extended to one cell (``aligned=False``). At a whole coordinate, where
    interpolation has a kink, it is the derivative to the right.

    Examples
    --------
    On a map that rises by 1 per column, moving the box to the right by 1 adds 1:

    >>> import numpy as np, roipool
    >>> features = np.tile(np.arange(5.0), (1, 1, 5, 1))
    >>> roipool.roi_align_backward_rois(np.ones((1, 1, 1, 1)), features, [[0, 1, 1, 3, 3]])
    array([[0.5, 0. , 0.5, 0. ]])
    """
    with Call(
        grad_output=grad_output, features=features, rois=rois, batch_indices=batch_indices
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned)
        return call.average_backward_boxes(*call.checked_backward_boxes(placed, layout))
