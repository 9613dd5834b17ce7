"""Crop and resize: one sample per cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Real,
    Scalar,
    Size,
    _boxes,
    _from_nchw,
    _pair,
    _real,
    _shape_nchw,
    _to_nchw,
)
from roipool.reference._interpolation import Neighbours, _corner_slopes, _corners, _round_half_away
from roipool.reference._loops import (
    Bin,
    Definition,
    Pixel,
    Sample,
    _average,
    _average_backward,
    _by_end,
    _every_bin,
    _slope,
    _whole,
)


def _crop_position(
    first: float,
    last: float,
    p: int,
    bins: int,
    size: int,
    real: Real,
    *,
    pinned: bool,
    ratio_first: bool,
) -> Scalar:
    """Where cell `p` of a side samples.

    Cells are evenly spread from the box's first edge to its last; a single one is midway. The last
    is exactly on the box's last edge if `pinned`, else where rounding puts it. `ratio_first`
    multiplies in the order of TensorFlow's box gradient, which is not that of its other kernels.
    """
    if bins == 1:
        return real(0.5) * (real(first) + real(last)) * real(size - 1)
    if pinned and p == bins - 1:
        return real(last) * real(size - 1)
    length = real(last) - real(first)
    ratio = real(size - 1) / real(bins - 1)
    spacing = length * ratio if ratio_first else length * real(size - 1) / real(bins - 1)
    return real(first) * real(size - 1) + real(p) * spacing


def _floor_and_ceil(at: Scalar, size: int, real: Real) -> Neighbours:
    """The pixels at floor and ceil of a position, with their weights.

    On a pixel's centre it is that pixel twice, with weights 1 and 0.
    """
    fraction = at - real(math.floor(at))
    return math.floor(at), math.ceil(at), float(real(1) - fraction), float(fraction)


def _is_outside(at: Scalar, size: int) -> bool:
    """Whether a position on an axis is off the line from the first pixel centre to the last."""
    return not 0 <= at <= size - 1


class CropRules(NamedTuple):
    """What implementations of crop and resize may get wrong, each rule apart: TensorFlow's.

    Verification replaces one to learn whether it is what an implementation does otherwise.

    Attributes
    ----------
    position, is_outside, neighbours : callable
        Functions of this module.
    nearest : callable
        From a position to the pixel that is copied.
    weighted : callable
        From a bin to the one whose sample is the result.
    """

    position: Callable[..., Scalar] = _crop_position
    is_outside: Callable[[Any, int], bool] = _is_outside
    neighbours: Callable[..., Neighbours] = _floor_and_ceil
    nearest: Callable[[Any], int] = _round_half_away
    weighted: Callable[[Bin], Bin] = _whole


TENSORFLOW = CropRules()


def _crop_bin(
    box: Box,
    ph: int,
    pw: int,
    *,
    bins: Pair,
    size: Pair,
    method: str,
    real: Real,
    pinned: bool,
    ratio_first: bool = False,
    rules: CropRules = TENSORFLOW,
) -> Bin:
    """Crop and resize: one sample, outside once it leaves the rectangle of pixel centres."""
    position = partial(rules.position, real=real, pinned=pinned, ratio_first=ratio_first)
    y = position(box[0], box[2], ph, bins[0], size[0])
    x = position(box[1], box[3], pw, bins[1], size[1])
    pixels: list[Pixel] = []
    if not rules.is_outside(y, size[0]) and not rules.is_outside(x, size[1]):
        if method == "nearest":
            pixels = [(rules.nearest(y), rules.nearest(x), 1.0)]
        else:
            rows, columns = rules.neighbours(y, size[0], real), rules.neighbours(x, size[1], real)
            pixels = _corners(rows, columns)
    return rules.weighted(Bin([Sample(0, float(y), float(x), pixels)], (1, 1)))


def _crop(
    bins: Pair,
    size: Sequence[int],
    method: str,
    pinned: bool,
    coordinate_dtype: DType,
    rules: CropRules,
) -> Definition:
    """The definition of crop and resize with these options."""
    if method not in ("bilinear", "nearest"):
        raise ValueError(f"method must be 'bilinear' or 'nearest', got {method!r}")
    return partial(
        _crop_bin,
        bins=bins,
        size=_pair(size),
        method=method,
        real=_real(coordinate_dtype),
        pinned=pinned,
        rules=rules,
    )


def crop_and_resize(
    features: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: Size,
    *,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    layout: str = "NCHW",
    pinned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: CropRules = TENSORFLOW,
) -> Floats:
    """Crops resized by one sample per cell, corners on corners.

    Source: TensorFlow's tf.image.crop_and_resize; for the pinned cell, OpenVINO's bilinear
    ROIPooling and ONNX Runtime's CropAndResize.

    Parameters
    ----------
    features, layout, coordinate_dtype
        See `roipool.reference`.
    boxes : array (K, 4)
        Rows ``[y1, x1, y2, x2]``; the map's first pixel centre is 0 and its last 1; a reversed box
        flips.
    box_indices : integers (K,)
        The image of each box.
    crop_size : int or (int, int)
        Cells, ``(PH, PW)``.
    method : {"bilinear", "nearest"}
        How a sample reads the map; "nearest" takes halves away from zero.
    extrapolation_value : float
        Value of a cell whose sample is NaN, or outside the rectangle of the map's pixel centres.
    pinned : bool
        Whether the last cell of a side lies exactly on the box's last edge. If not, it lies where
        rounding puts it, as in TensorFlow: perhaps just outside the map.
    rules : CropRules
        By default TensorFlow's.

    Returns
    -------
    crops : float64
        The crops.

    Raises
    ------
    ValueError
        If `boxes` is not ``(K, 4)`` with K `box_indices`, if one of them names an image that does
        not exist, or if `method` or `layout` is unknown.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> crop_and_resize(features, [[0.25, 0.25, 0.75, 0.75]], [0], 2).tolist()
    [[[[7.0, 9.0], [17.0, 19.0]]]]
    """
    planes, bins = _to_nchw(features, layout), _pair(crop_size)
    table = _boxes(boxes, box_indices, len(planes))
    definition = _crop(bins, planes.shape[2:], method, pinned, coordinate_dtype, rules)
    return _from_nchw(_average(planes, table, bins, definition, extrapolation_value), layout)


def crop_and_resize_backward(
    grad_output: Array,
    boxes: Array,
    box_indices: Array,
    input_shape: Sequence[int],
    *,
    method: str = "bilinear",
    layout: str = "NCHW",
    pinned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: CropRules = TENSORFLOW,
) -> Floats:
    """Gradient of `crop_and_resize` for the features: its transpose.

    Source: TensorFlow's CropAndResizeGradImage.

    Parameters
    ----------
    grad_output, input_shape, layout
        See `roipool.reference`.
    boxes, box_indices, method, pinned, coordinate_dtype, rules
        As for `crop_and_resize`.

    Returns
    -------
    grad : float64
        Of shape `input_shape`.

    Raises
    ------
    ValueError
        If `boxes` is not ``(K, 4)`` with K `box_indices`, if one of them names an image that does
        not exist, or if `method` or `layout` is unknown.

    Examples
    --------
    >>> crop_and_resize_backward([[[[1.0]]]], [[0, 0, 1, 1]], [0], (1, 1, 2, 2)).tolist()
    [[[[0.25, 0.25], [0.25, 0.25]]]]
    """
    shape, upstream = _shape_nchw(input_shape, layout), _to_nchw(grad_output, layout)
    definition = _crop(
        _pair(upstream.shape[2:]), shape[2:], method, pinned, coordinate_dtype, rules
    )
    return _from_nchw(
        _average_backward(upstream, _boxes(boxes, box_indices, shape[0]), shape, definition), layout
    )


def _crop_share(p: int, bins: int, size: int) -> tuple[float, float]:
    """Map pixels that cell `p`'s sample moves as its side's start, and end, moves by one."""
    fraction = 0.5 if bins == 1 else p / (bins - 1)
    return (size - 1) * (1 - fraction), (size - 1) * fraction


@np.errstate(over="ignore", invalid="ignore")
def crop_and_resize_backward_boxes(
    grad_output: Array,
    features: Array,
    boxes: Array,
    box_indices: Array,
    *,
    layout: str = "NCHW",
    pinned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: CropRules = TENSORFLOW,
) -> Floats:
    """Gradient of bilinear `crop_and_resize` for the boxes.

    A sample on a row of pixel centres has no slope for y, one on a column none for x, one outside
    neither. Source: TensorFlow's CropAndResizeGradBoxes; without `pinned` in its own order of
    multiplication, which is not that of its forward.

    Parameters
    ----------
    grad_output, features, layout
        See `roipool.reference`.
    boxes, box_indices, pinned, coordinate_dtype, rules
        As for `crop_and_resize`.

    Returns
    -------
    grad : float64 (K, 4)
        For y1, x1, y2, x2.

    Raises
    ------
    ValueError
        If `boxes` is not ``(K, 4)`` with K `box_indices`, if one of them names an image that does
        not exist, or if `layout` is unknown.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> crop_and_resize_backward_boxes([[[[1.0]]]], features, [[0, 0, 0.75, 0.75]], [0]).tolist()
    [[10.0, 2.0, 10.0, 2.0]]
    """
    planes, upstream = _to_nchw(features, layout), _to_nchw(grad_output, layout)
    bins, size, real = _pair(upstream.shape[2:]), _pair(planes.shape[2:]), _real(coordinate_dtype)
    table = _boxes(boxes, box_indices, len(planes))
    definition = partial(
        _crop_bin,
        bins=bins,
        size=size,
        method="bilinear",
        real=real,
        pinned=pinned,
        ratio_first=not pinned,
        rules=rules,
    )
    grad = np.zeros((len(table), 4))
    for k, n, ph, pw, found in _every_bin(table, bins, definition):
        (sample,) = found.samples
        if sample.pixels:
            slopes = _corner_slopes(
                _floor_and_ceil(real(sample.y), size[0], real),
                _floor_and_ceil(real(sample.x), size[1], real),
            )
            dy, dx = (_slope(upstream[k, :, ph, pw], planes[n], pixels) for pixels in slopes)
            y_first, y_last = _crop_share(ph, bins[0], size[0])
            x_first, x_last = _crop_share(pw, bins[1], size[1])
            shares = ((dy, y_first), (dx, x_first), (dy, y_last), (dx, x_last))
            grad[k] += [_by_end(slope, share) for slope, share in shares]
    return grad
