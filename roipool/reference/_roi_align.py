"""ROI align: the average or maximum of bilinear samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Integers,
    Pair,
    Real,
    Rois,
    Scalar,
    Size,
    _boxes,
    _from_nchw,
    _pair,
    _real,
    _shape_nchw,
    _to_nchw,
)
from roipool.reference._interpolation import Neighbours, _corner_slopes, _corners
from roipool.reference._loops import (
    Bin,
    Definition,
    Pixel,
    Sample,
    _average,
    _average_backward,
    _by_end,
    _every_bin,
    _maximum,
    _maximum_backward,
    _slope,
    _whole,
)

ADAPTIVE_LIMIT = 2**22  # samples that a bin of an adaptive grid may have on one axis


def _side(
    first: float, last: float, scale: float, aligned: bool, real: Real
) -> tuple[Scalar, Scalar, bool]:
    """Start and length of a side in map pixels, and whether the length is held at 1.

    A held length is the constant 1, not the box's. A side that is not finite is NaN, so that all
    its samples are outside (a clamped length could hide an infinite end).
    """
    offset = real(0.5 if aligned else 0.0)
    start, end = real(first) * real(scale) - offset, real(last) * real(scale) - offset
    if not (np.isfinite(start) and np.isfinite(end)):
        return real(math.nan), real(math.nan), False
    if not aligned and end - start < 1:
        return start, real(1), True
    return start, end - start, False


def _samples_per_bin(length: Scalar, bins: int, ratio: int, real: Real, count_real: Real) -> int:
    """Samples of a bin on one side: `ratio`; if not positive, one per map pixel, rounded up.

    The bin's length is rounded to `count_real` before it is rounded up.
    """
    if ratio > 0:
        return ratio
    per_bin = float(count_real(float(length / real(bins))))
    return math.ceil(min(per_bin, ADAPTIVE_LIMIT)) if per_bin > 0 else 0


def _near_map(position: Callable[[int], Scalar], grid: int, size: int, margin: float) -> range:
    """The samples whose `position` on an axis may lie in the map or so many cells off it.

    Positions all rise, or all fall.
    """
    lowest, highest = -margin, size - 1 + margin

    def first(condition: Callable[[float], bool]) -> int:
        return bisect_left(range(grid), True, key=lambda i: condition(float(position(i))))

    if grid > 0 and position(grid - 1) < position(0):
        return range(first(lambda at: at <= highest), first(lambda at: at < lowest))
    return range(first(lambda at: at >= lowest), first(lambda at: at > highest))


def _with_first_missing(numbers: list[int], count: int) -> list[int]:
    """Rising `numbers`, with the smallest number below `count` that they lack, if they lack any."""
    missing = 0
    while missing < len(numbers) and numbers[missing] == missing:
        missing += 1
    return numbers[:missing] + [missing] * (missing < count) + numbers[missing:]


@lru_cache(maxsize=4096)
def _neighbours(at: Scalar, size: int, real: Real) -> Neighbours:
    """The pixels before and after a position, with their weights.

    Ahead of the first pixel's centre, or past the last's, it is that pixel alone.
    """
    held = max(at, real(0))
    low = int(held)
    if low >= size - 1:
        return size - 1, size - 1, 1.0, 0.0
    return low, low + 1, float(real(1) - (held - real(low))), float(held - real(low))


def _is_outside(at: Scalar, size: int) -> bool:
    """Whether a position on an axis is outside the map: too far off it, or NaN.

    Too far is over one pixel ahead of the map's first pixel centre, or past its last.
    """
    return size == 0 or not -1 <= at <= size


def _align_slopes(y: Scalar, x: Scalar, size: Pair, real: Real) -> tuple[list[Pixel], list[Pixel]]:
    """The slopes of such a sample for y and for x.

    There are none where it is outside or held at the border.
    """
    if _is_outside(y, size[0]) or _is_outside(x, size[1]):
        return [], []
    for_y, for_x = _corner_slopes(_neighbours(y, size[0], real), _neighbours(x, size[1], real))
    return for_y if y >= 0 else [], for_x if x >= 0 else []


class AlignRules(NamedTuple):
    """What implementations of ROI align may get wrong, each rule apart: the published ones.

    Verification replaces one to learn whether it is what an implementation does otherwise.

    Attributes
    ----------
    side, samples_per_bin, is_outside, neighbours : callable
        Functions of this module.
    centre : float
        Where a sample lies in its part of the bin.
    margin : float
        How many cells off the map's pixel centres a sample may be inside.
    weighted : callable
        From a bin to the one whose samples are averaged, over its grid, or maximised.
    """

    side: Callable[..., tuple[Scalar, Scalar, bool]] = _side
    samples_per_bin: Callable[..., int] = _samples_per_bin
    is_outside: Callable[[Any, int], bool] = _is_outside
    neighbours: Callable[..., Neighbours] = _neighbours
    centre: float = 0.5
    margin: float = 1.0
    weighted: Callable[[Bin], Bin] = _whole


PUBLISHED = AlignRules()


class _Line(NamedTuple):
    """A bin's samples on one axis.

    How many there are, where each lies, and of those near the map number, position and pixels, or
    None if outside.
    """

    grid: int
    position: Callable[[int], Scalar]
    near: list[tuple[int, float, Neighbours | None]]


@lru_cache(maxsize=1024)  # a row of bins has one line of rows, whatever is then done with it
def _line(
    first: float,
    last: float,
    p: int,
    bins: int,
    size: int,
    scale: float,
    ratio: int,
    aligned: bool,
    real: Real,
    count_real: Real,
    rules: AlignRules,
) -> _Line:
    """The samples of bin `p` of a side of a box."""
    start, length, _ = rules.side(first, last, scale, aligned, real)
    grid = rules.samples_per_bin(length, bins, ratio, real, count_real)
    bin_size = length / real(bins)

    def position(i: int) -> Scalar:
        return start + real(p) * bin_size + (real(i) + real(rules.centre)) * bin_size / real(grid)

    near = []
    for i in _near_map(position, grid, size, rules.margin):
        at = position(i)
        pixels = None if rules.is_outside(at, size) else rules.neighbours(at, size, real)
        near.append((i, float(at), pixels))
    return _Line(grid, position, near)


def _align_bin(
    box: Box,
    ph: int,
    pw: int,
    *,
    bins: Pair,
    size: Pair,
    scale: float,
    ratio: Pair,
    aligned: bool,
    real: Real,
    count_real: Real,
    rules: AlignRules,
) -> Bin:
    """ROI align: a regular grid of samples in an unrounded bin.

    A sample is outside the map if it is on any axis. Of the samples outside only the first is sure
    to be listed: the others add 0 to a sum and cannot win a maximum. So a huge grid costs no more
    than the map.
    """
    kinds = (aligned, real, count_real, rules)
    rows = _line(box[1], box[3], ph, bins[0], size[0], scale, ratio[0], *kinds)
    columns = _line(box[0], box[2], pw, bins[1], size[1], scale, ratio[1], *kinds)
    near = {}
    for iy, y, above_below in rows.near:
        for ix, x, left_right in columns.near:
            number = iy * columns.grid + ix
            pixels = _corners(above_below, left_right) if above_below and left_right else []
            near[number] = Sample(number, y, x, pixels)
    samples = []
    for number in _with_first_missing(list(near), rows.grid * columns.grid):
        if number not in near:
            y_outside = rows.position(number // columns.grid)
            x_outside = columns.position(number % columns.grid)
            near[number] = Sample(number, float(y_outside), float(x_outside), [])
        samples.append(near[number])
    return rules.weighted(Bin(samples, (rows.grid, columns.grid)))


def _align(
    bins: Pair,
    size: Sequence[int],
    scale: float,
    ratio: Size,
    aligned: bool,
    coordinate_dtype: DType,
    count_dtype: DType | None = None,
    rules: AlignRules = PUBLISHED,
) -> Definition:
    """The definition of ROI align with these options."""
    return partial(
        _align_bin,
        bins=bins,
        size=_pair(size),
        scale=scale,
        ratio=_pair(ratio),
        aligned=aligned,
        real=_real(coordinate_dtype),
        count_real=_real(coordinate_dtype if count_dtype is None else count_dtype),
        rules=rules,
    )


def roi_align(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    mode: str = "avg",
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    return_argmax: bool = False,
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
    rules: AlignRules = PUBLISHED,
) -> Floats | tuple[Floats, Integers]:
    """Average or maximum of bilinear samples in every bin.

    A sample less than one pixel off the map's pixel centres is held at the border; farther off it
    is 0, and counted. A bin without samples is 0, and so is every bin of a box that is not finite.
    Source: He et al., "Mask R-CNN", 2017, as torchvision and mmcv define it.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    sampling_ratio : int or (int, int)
        Samples per bin and axis, ``(h, w)``; if not positive, the ceil of the bin's size in map
        pixels.
    aligned : bool
        Shift boxes by half a map pixel; if not, sides are at least one map pixel long.
    mode : {"avg", "max"}
        What is taken of a bin's samples.
    return_argmax : bool
        With mode "max", also return which sample won.
    count_dtype : dtype, optional
        What a bin's length is rounded to before it is rounded up to its number of samples; by
        default `coordinate_dtype`. It is float32 in mmcv, whatever the maps.
    rules : AlignRules
        By default the published ones.

    Returns
    -------
    output : float64
        The averages or maxima.
    argmax : int64
        ``iy * grid_w + ix`` of the maximum in the bin's grid of samples; -1 where the bin has no
        samples, none inside the map, or none above -inf. Only with `return_argmax`.

    Raises
    ------
    ValueError
        If `rois` has none of its three forms or names an image that does not exist, or if
        `mode` or `layout` is unknown.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> roi_align(features, [[0, 1, 1, 3, 3]], 2, sampling_ratio=2).tolist()
    [[[[7.0, 8.0], [12.0, 13.0]]]]
    """
    planes, bins = _to_nchw(features, layout), _pair(output_size)
    boxes = _boxes(rois, batch_indices, len(planes))
    options = spatial_scale, sampling_ratio, aligned, coordinate_dtype, count_dtype
    definition = _align(bins, planes.shape[2:], *options, rules)
    if mode == "avg":
        return _from_nchw(_average(planes, boxes, bins, definition), layout)
    if mode != "max":
        raise ValueError(f"mode must be 'avg' or 'max', got {mode!r}")
    maxima = _maximum(planes, boxes, bins, definition)
    output, argmax = _from_nchw(maxima.value, layout), _from_nchw(maxima.number, layout)
    return (output, argmax) if return_argmax else output


def roi_align_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    mode: str = "avg",
    argmax: Array | None = None,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
    rules: AlignRules = PUBLISHED,
) -> Floats:
    """Gradient of `roi_align` for the features.

    It is the transpose of the average, or of the winning samples. Source: the backward passes of
    roi_align in torchvision (average) and of RoIAlign in mmcv (maximum).

    Parameters
    ----------
    grad_output, input_shape, rois, spatial_scale, batch_indices, layout
        See `roipool.reference`.
    sampling_ratio, aligned, mode, coordinate_dtype, count_dtype, rules
        As for `roi_align`.
    argmax : array of integers, optional
        As `roi_align` returned it; needed with mode "max".

    Returns
    -------
    grad : float64
        Of shape `input_shape`.

    Raises
    ------
    ValueError
        If `rois` has none of its three forms or names an image that does not exist, if `mode` or
        `layout` is unknown, or if mode "max" has no `argmax`.

    Examples
    --------
    >>> roi_align_backward([[[[1.0]]]], [[0, 0, 0, 2, 2]], (1, 1, 2, 2), sampling_ratio=1).tolist()
    [[[[0.25, 0.25], [0.25, 0.25]]]]
    """
    shape, upstream = _shape_nchw(input_shape, layout), _to_nchw(grad_output, layout)
    boxes, bins = _boxes(rois, batch_indices, shape[0]), _pair(upstream.shape[2:])
    options = spatial_scale, sampling_ratio, aligned, coordinate_dtype, count_dtype
    definition = _align(bins, shape[2:], *options, rules)
    if mode == "avg":
        return _from_nchw(_average_backward(upstream, boxes, shape, definition), layout)
    if mode != "max" or argmax is None:
        raise ValueError(f"mode must be 'avg', or 'max' with argmax, got {mode!r}")
    indices = _to_nchw(argmax, layout).astype(np.int64)
    return _from_nchw(_maximum_backward(upstream, indices, boxes, shape, definition), layout)


def _align_share(i: int, grid: int, p: int, bins: int, fixed_length: bool) -> tuple[float, float]:
    """How far sample `i` of bin `p` moves as its side's start, and end, moves by one."""
    fraction = (p + (i + 0.5) / grid) / bins
    return (1.0, 0.0) if fixed_length else (1 - fraction, fraction)


@np.errstate(over="ignore", invalid="ignore")
def roi_align_backward_rois(
    grad_output: Array,
    features: Array,
    rois: Rois,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: AlignRules = PUBLISHED,
) -> Floats:
    """Gradient of `roi_align` (average) for the boxes.

    It is the slope of the map at every sample, times the sample's motion. A sample at fraction f of
    a side moves by 1 - f with the side's start and by f with its end; only with the start where the
    length is held at one pixel. The number of samples counts as constant. Samples outside the map
    or held at its border have no slope; one on a pixel's centre has the slope towards the next
    pixel. Source: the chain rule, applied to torchvision's definition of roi_align.

    Parameters
    ----------
    grad_output, features, rois, spatial_scale, batch_indices, layout
        See `roipool.reference`.
    sampling_ratio, aligned, coordinate_dtype, rules
        As for `roi_align`.

    Returns
    -------
    grad : float64 (K, 4)
        For x1, y1, x2, y2.

    Raises
    ------
    ValueError
        If `rois` has none of its three forms or names an image that does not exist, or if
        `layout` is unknown.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> roi_align_backward_rois([[[[1.0]]]], features, [[0, 1, 1, 3, 3]]).tolist()
    [[0.5, 2.5, 0.5, 2.5]]
    """
    planes, upstream = _to_nchw(features, layout), _to_nchw(grad_output, layout)
    bins, size, real = _pair(upstream.shape[2:]), _pair(planes.shape[2:]), _real(coordinate_dtype)
    boxes = _boxes(rois, batch_indices, len(planes))
    definition = _align(
        bins, size, spatial_scale, sampling_ratio, aligned, coordinate_dtype, rules=rules
    )
    grad = np.zeros((len(boxes), 4))
    for k, n, ph, pw, found in _every_bin(boxes, bins, definition):
        grid_h, grid_w = found.grid
        x1, y1, x2, y2 = boxes[k][1]
        fixed_h = rules.side(y1, y2, spatial_scale, aligned, real)[2]
        fixed_w = rules.side(x1, x2, spatial_scale, aligned, real)[2]
        step = upstream[k, :, ph, pw] / max(grid_h * grid_w, 1)
        for sample in found.samples:
            slopes = _align_slopes(real(sample.y), real(sample.x), size, real)
            dy, dx = (_slope(step, planes[n], pixels) for pixels in slopes)
            y_first, y_last = _align_share(sample.number // grid_w, grid_h, ph, bins[0], fixed_h)
            x_first, x_last = _align_share(sample.number % grid_w, grid_w, pw, bins[1], fixed_w)
            shares = ((dx, x_first), (dy, y_first), (dx, x_last), (dy, y_last))
            scale = float(real(spatial_scale))  # of 0: no sample moves, whatever it reads
            grad[k] += [_by_end(slope, share * scale) for slope, share in shares]
    return grad
