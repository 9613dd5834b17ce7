"""ROI align of rotated boxes: the average of bilinear samples on a turned grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
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
from roipool.reference._interpolation import _corners
from roipool.reference._loops import (
    EMPTY,
    Bin,
    Definition,
    Pixel,
    Sample,
    _average,
    _average_backward,
    _every_bin,
    _slope,
)
from roipool.reference._roi_align import (
    _align_slopes,
    _is_outside,
    _neighbours,
    _samples_per_bin,
)

_ALIGNED = {True: (0.5, False), False: (0.0, True)}  # shift, and whether sides are held at 1
FARTHEST_CENTRE = 2.0**30  # in map pixels; the largest angle in radians, too


class _Side(NamedTuple):
    """One side of a box, around 0: its length, the samples of its bins, whether it is held at 1."""

    length: Scalar
    bins: int
    grid: int
    held: bool

    def position(self, bin_number: int, sample: int, real: Real) -> Scalar:
        """Return where a sample lies along the side."""
        bin_size = self.length / real(self.bins)
        start = -self.length / real(2)
        step = (real(sample) + real(0.5)) * bin_size / real(self.grid)
        return start + real(bin_number) * bin_size + step

    def share(self, bin_number: int, sample: int) -> float:
        """Return how far a sample moves as the side grows by one."""
        if self.held:
            return 0.0
        return (bin_number + (sample + 0.5) / self.grid) / self.bins - 0.5


class _Rotated:
    """One box, and what its samples are.

    It is moved by `-shift` cells, sides are at least one cell long if `least`, and `turn` makes
    its angle radians, counter-clockwise.
    """

    size: Pair
    real: Real
    scale: float
    turn: float
    x: Scalar
    y: Scalar
    across: _Side
    down: _Side
    exists: bool
    cosine: Scalar
    sine: Scalar

    def __init__(
        self,
        box: Box,
        bins: Pair,
        size: Pair,
        scale: float,
        ratio: Pair,
        shift: float,
        least: bool,
        turn: float,
        real: Real,
    ) -> None:
        self.size, self.real, self.scale, self.turn = size, real, scale, turn
        self.x, self.y = (real(at) * real(scale) - real(shift) for at in box[:2])
        self.across, self.down = (
            self._side(real(length) * real(scale), bins[axis], ratio[axis], least)
            for length, axis in ((box[2], 1), (box[3], 0))
        )
        angle = float(real(box[4])) * turn
        numbers = (*map(float, (self.x, self.y, self.across.length, self.down.length)), angle)
        self.exists = all(map(math.isfinite, numbers)) and all(
            abs(number) <= FARTHEST_CENTRE for number in (*numbers[:2], angle)
        )
        self.cosine, self.sine = (
            (real(math.cos(angle)), real(math.sin(angle))) if self.exists else (real(0), real(0))
        )

    def _side(self, length: Scalar, bins: int, ratio: int, least: bool) -> _Side:
        held = least and bool(length < 1)
        length = self.real(1) if held else length
        return _Side(
            length, bins, _samples_per_bin(length, bins, ratio, self.real, self.real), held
        )

    def pixels(self, y: Scalar, x: Scalar) -> list[Pixel]:
        """Return the pixels that a sample reads: none if it is outside the map."""
        (height, width), real = self.size, self.real
        if _is_outside(y, height) or _is_outside(x, width):
            return []
        return _corners(_neighbours(y, height, real), _neighbours(x, width, real))

    def bin(self, ph: int, pw: int) -> Bin:
        """Return the samples of one bin, those that lie in the map."""
        if not self.exists:
            return EMPTY
        grid = self.down.grid, self.across.grid
        samples = []
        for iy in range(grid[0]):
            yy = self.down.position(ph, iy, self.real)
            for ix in range(grid[1]):
                xx = self.across.position(pw, ix, self.real)
                y = yy * self.cosine - xx * self.sine + self.y
                x = yy * self.sine + xx * self.cosine + self.x
                if pixels := self.pixels(y, x):
                    samples.append(Sample(iy * grid[1] + ix, float(y), float(x), pixels))
        return Bin(samples, grid)

    def motion(self, ph: int, pw: int, sample: Sample) -> Iterator[tuple[float, float]]:
        """Return how y and x of a sample move with centre x and y, width, height and angle."""
        iy, ix = divmod(sample.number, self.across.grid)
        scale, cosine, sine = (float(value) for value in (self.scale, self.cosine, self.sine))
        across, down = self.across.share(pw, ix) * scale, self.down.share(ph, iy) * scale
        yield 0.0, scale
        yield scale, 0.0
        yield -across * sine, across * cosine
        yield down * cosine, down * sine
        # Turning counter-clockwise as the image is shown, where y points down.
        yield -self.turn * (sample.x - float(self.x)), self.turn * (sample.y - float(self.y))


def _turn(clockwise: bool, angle_unit: str) -> float:
    """Radians, counter-clockwise, for one of the caller's units."""
    units = {"radians": 1.0, "degrees": math.pi / 180}
    if angle_unit not in units:
        raise ValueError(f"angle_unit must be 'radians' or 'degrees', got {angle_unit!r}")
    return -units[angle_unit] if clockwise else units[angle_unit]


def _rotated(
    bins: Pair,
    size: Sequence[int],
    scale: float,
    ratio: Size,
    aligned: bool,
    turn: float,
    coordinate_dtype: DType,
) -> Definition:
    """The definition of rotated ROI align with these options."""
    ratios, real, pair = _pair(ratio), _real(coordinate_dtype), _pair(size)

    def definition(box: Box, ph: int, pw: int) -> Bin:
        return _Rotated(box, bins, pair, scale, ratios, *_ALIGNED[bool(aligned)], turn, real).bin(
            ph, pw
        )

    return definition


def roi_align_rotated(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: str = "radians",
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Average of bilinear samples in every bin of rotated boxes.

    The grid of samples of `roi_align` is laid around the origin, turned, and moved to the box's
    centre. Samples outside the map count as 0. A box that is not finite, or whose centre or angle
    is beyond 2**30 map pixels or radians, is 0. Source: RoIAlignRotated of mmcv and detectron2.

    Parameters
    ----------
    features, output_size, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    rois : array
        Boxes of five numbers: centre x, centre y, width, height, angle.
    sampling_ratio, aligned
        As for `roi_align`.
    clockwise : bool
        Whether angles grow clockwise as the image is shown.
    angle_unit : {"radians", "degrees"}
        The unit of angles.

    Returns
    -------
    output : float64
        The averages.

    Raises
    ------
    ValueError
        If `rois` has none of its three forms or names an image that does not exist, or if
        `angle_unit` or `layout` is unknown.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> roi_align_rotated(features, [[0, 2, 2, 2, 2, 0]], 2, sampling_ratio=2).tolist()
    [[[[7.0, 8.0], [12.0, 13.0]]]]
    """
    planes, bins = _to_nchw(features, layout), _pair(output_size)
    boxes = _boxes(rois, batch_indices, len(planes), 5)
    definition = _rotated(
        bins, planes.shape[2:], spatial_scale, sampling_ratio, aligned,
        _turn(clockwise, angle_unit), coordinate_dtype,
    )  # fmt: skip
    return _from_nchw(_average(planes, boxes, bins, definition), layout)


def roi_align_rotated_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: str = "radians",
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Gradient of `roi_align_rotated` for the features: the transpose of the average.

    Parameters
    ----------
    grad_output, input_shape, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    rois, sampling_ratio, aligned, clockwise, angle_unit
        As for `roi_align_rotated`.

    Returns
    -------
    grad : float64
        Of shape `input_shape`.

    Raises
    ------
    ValueError
        As for `roi_align_rotated`.

    Examples
    --------
    >>> box = [[0, 1, 1, 2, 2, 0]]
    >>> roi_align_rotated_backward([[[[1.0]]]], box, (1, 1, 2, 2), sampling_ratio=1).tolist()
    [[[[0.25, 0.25], [0.25, 0.25]]]]
    """
    shape, upstream = _shape_nchw(input_shape, layout), _to_nchw(grad_output, layout)
    boxes, bins = _boxes(rois, batch_indices, shape[0], 5), _pair(upstream.shape[2:])
    definition = _rotated(
        bins, shape[2:], spatial_scale, sampling_ratio, aligned,
        _turn(clockwise, angle_unit), coordinate_dtype,
    )  # fmt: skip
    return _from_nchw(_average_backward(upstream, boxes, shape, definition), layout)


def roi_align_rotated_backward_rois(
    grad_output: Array,
    features: Array,
    rois: Rois,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: str = "radians",
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Gradient of `roi_align_rotated` for the boxes.

    It is the slope of the map at every sample, times the sample's motion, as in
    `roi_align_backward_rois`. Source: the chain rule.

    Parameters
    ----------
    grad_output, features, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    rois, sampling_ratio, aligned, clockwise, angle_unit
        As for `roi_align_rotated`.

    Returns
    -------
    grad : float64 (K, 5)
        For centre x, centre y, width, height, angle.

    Raises
    ------
    ValueError
        As for `roi_align_rotated`.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> box = [[0, 2, 2, 2, 2, 0]]
    >>> roi_align_rotated_backward_rois([[[[1.0]]]], features, box).tolist()
    [[1.0, 5.0, 0.0, 0.0, 0.0]]
    """
    planes, upstream = _to_nchw(features, layout), _to_nchw(grad_output, layout)
    bins, size, real = _pair(upstream.shape[2:]), _pair(planes.shape[2:]), _real(coordinate_dtype)
    boxes, turn = _boxes(rois, batch_indices, len(planes), 5), _turn(clockwise, angle_unit)
    definition = _rotated(
        bins, size, spatial_scale, sampling_ratio, aligned, turn, coordinate_dtype
    )
    grad = np.zeros((len(boxes), 5))
    for k, n, ph, pw, found in _every_bin(boxes, bins, definition):
        with np.errstate(over="ignore", invalid="ignore"):
            box = _Rotated(
                boxes[k][1], bins, size, spatial_scale, _pair(sampling_ratio),
                *_ALIGNED[bool(aligned)], turn, real,
            )  # fmt: skip
        for sample in found.samples:
            slopes = _align_slopes(real(sample.y), real(sample.x), size, real)
            upstream_bin = upstream[k, :, ph, pw] / math.prod(found.grid)
            dy, dx = (_slope(upstream_bin, planes[n], pixels) for pixels in slopes)
            for number, (y, x) in enumerate(box.motion(ph, pw, sample)):
                grad[k, number] += (dy * y if y else 0.0) + (dx * x if x else 0.0)
    return grad
