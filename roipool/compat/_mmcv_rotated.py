"""mmcv's ``roi_align_rotated`` and ``riroi_align_rotated``, which are in `roipool.compat.mmcv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array, Library
from roipool._boxes import ROTATED
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._front_ends import for_every_array
from roipool._layout import Shape4
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat import _rotated
from roipool.compat._layers import CheckedLayer

ROTATED_FORM = ROTATED._replace(features="input", read=conventions.numbered_boxes)
RIROI_FORM = ROTATED._replace(size="out_size", read=conventions.numbered_boxes)


def _align(spatial_scale: float, sampling_ratio: int, aligned: bool, clockwise: bool) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    return _rotated.definition(scale, sampling_ratio, aligned, clockwise)


@for_every_array
def roi_align_rotated(
    input: ArrayT,
    rois: Any,
    output_size: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> ArrayT:
    """ROI align of rotated boxes as ``mmcv.ops.roi_align_rotated``.

    Parameters
    ----------
    rois : array_like
        Shape (K, 6): batch index (cut to a whole number), centre x, centre y, width, height in
        image pixels, and the angle in radians.
    aligned : bool
        Shift by half a cell. False also makes sides at least one cell long.
    clockwise : bool
        Whether angles grow clockwise in the displayed image; by default counter-clockwise.

    Notes
    -----
    For float64 maps mmcv rounds the length of a bin to float32 to count adaptive samples; here
    samples are counted in float64. The CPU operator refuses negative sides with `aligned`; here
    such boxes are pooled as by the CUDA operator.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmcv
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mmcv.roi_align_rotated(input, [[0, 2, 2, 2, 2, np.pi / 2]], 2, 1.0, 2)
    array([[[[12.,  7.],
             [13.,  8.]]]], dtype=float32)
    """
    with Call(ROTATED_FORM, input=input, rois=rois) as call:
        placed = _align(spatial_scale, sampling_ratio, aligned, clockwise)
        return call.averages(call.request(placed, output_size))


@for_every_array
def roi_align_rotated_backward(
    grad_output: ArrayT,
    rois: Any,
    input_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_align_rotated` with respect to `input`."""
    with Call(ROTATED_FORM, grad_output=grad_output, rois=rois) as call:
        placed = _align(spatial_scale, sampling_ratio, aligned, clockwise)
        return call.average_backward(*call.checked_backward(placed, input_shape))


@dataclass(eq=False, repr=False)
class RoIAlignRotated(CheckedLayer):
    """``mmcv.ops.RoIAlignRotated``: :func:`roi_align_rotated` as a class."""

    output_size: int | Sequence[int]
    spatial_scale: float
    sampling_ratio: int = 0
    aligned: bool = True
    clockwise: bool = False

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        options = self.spatial_scale, self.sampling_ratio, self.aligned, self.clockwise
        return roi_align_rotated(input, rois, self.output_size, *options)

    if TYPE_CHECKING:
        __call__ = forward


class _Orientations:
    """How the channels of each box, one for each orientation, turn with it.

    Channel `o` of a result is a mix of the pooled channels `o - first` and `o - first + 1`.
    """

    def __init__(self, library: Library, angles: Array, count: int) -> None:
        self.library, self.count = library, count
        xp, real = library.xp(), conventions.scalar_of(angles)
        with np.errstate(all="ignore"):
            product = check.cast(angles * real(count), check.FLOAT64)
            place = check.cast(product / (2 * np.pi), check.dtype_of(angles))
            # Where it is not finite, the pooled values are 0 whatever the orientation.
            place = xp.where(xp.abs(place) <= real(2**30), place, real(0))
            first = xp.floor(place)
            self.far = (place - first)[:, None, None, None, None]
            self.near = -self.far + real(1)
        self.first = check.cast(first, check.INT64)[:, None]

    def mixed(self, pooled: Array) -> Array:
        """Return the channels of the result."""
        numbers = self._numbers()
        return self._mix(pooled, numbers - self.first, numbers - self.first + 1)

    def transposed(self, gradient: Array) -> Array:
        """Return the gradient of the pooled channels from that of the result."""
        numbers = self._numbers()
        return self._mix(gradient, numbers + self.first, numbers + self.first - 1)

    def _numbers(self) -> Array:
        return self.library.xp().arange(self.count, dtype=np.int64)

    def _mix(self, channels: Array, near: Array, far: Array) -> Array:
        boxes, count, *bins = channels.shape
        grouped = channels.reshape(boxes, count // self.count, self.count, *bins)
        parts = [
            self.library.xp().take_along_axis(
                grouped, (places % self.count)[:, None, :, None, None], axis=2
            )
            for places in (near, far)
        ]
        with np.errstate(all="ignore"):
            mixed = self.near * parts[0] + self.far * parts[1]
        return mixed.reshape(channels.shape)


class _RiRoI(NamedTuple):
    """The options of RiRoI align, checked."""

    definition: Definition
    orientations: int

    @classmethod
    def checked(
        cls, spatial_scale: float, num_samples: int, num_orientations: int, clockwise: bool
    ) -> _RiRoI:
        scale = conventions.float32_number("spatial_scale", spatial_scale)
        placed = _rotated.definition(scale, num_samples, False, clockwise, name="num_samples")
        count = check.whole_number("num_orientations", num_orientations)
        if count < 1:
            raise ValueError(f"num_orientations must be at least 1, got {count}")
        return cls(placed, count)

    def check_channels(self, name: str, shape: Shape4) -> None:
        """Check that each orientation has as many channels."""
        if shape[1] % self.orientations:
            raise ValueError(
                f"{name} must have a multiple of {self.orientations} channels "
                f"(num_orientations), got {shape[1]}"
            )


@for_every_array
def riroi_align_rotated(
    features: ArrayT,
    rois: Any,
    out_size: int | Sequence[int],
    spatial_scale: float,
    num_samples: int = 0,
    num_orientations: int = 8,
    clockwise: bool = False,
) -> ArrayT:
    """Rotation-invariant ROI align as ``mmcv.ops.riroi_align_rotated``.

    Channels come in groups of `num_orientations`, one channel for each direction. Each output
    channel interpolates between the two directions nearest to its own, relative to the box.
    (mmcv implements it for CUDA only.)

    Parameters
    ----------
    features : ndarray
        Maps, shape (N, C, H, W); C is a multiple of `num_orientations`.
    rois : array_like
        Shape (K, 6): batch index (cut to a whole number), centre x, centre y, width, height in
        image pixels, and the angle in radians.
    num_samples : int
        Samples per bin and axis; 0 or less is adaptive.
    num_orientations : int
        Directions, at equal angles.
    clockwise : bool
        Whether boxes turn clockwise in the displayed image; by default counter-clockwise. As in the
        original, channels turn by the given angle either way.

    Notes
    -----
    Boxes are not shifted and are at least one cell long. The original interpolates channels for
    each sample; here pooled values are interpolated, which differs by rounding only.

    Examples
    --------
    A quarter turn moves every channel to the next of four:

    >>> import numpy as np
    >>> from roipool.compat import mmcv
    >>> features = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1) * np.ones((5, 5), np.float32)
    >>> box = [[0, 2, 2, 2, 2, np.pi / 2]]
    >>> mmcv.riroi_align_rotated(features, box, 1, 1.0, 2, num_orientations=4).ravel()
    array([3., 0., 1., 2.], dtype=float32)
    """
    with Call(RIROI_FORM, features=features, rois=rois) as call:
        options = _RiRoI.checked(spatial_scale, num_samples, num_orientations, clockwise)
        maps, regions, pooling = call.checked_forward(options.definition, out_size)
        options.check_channels("features", maps.shape)
        dtype = check.dtype_of(maps)
        wide = check.cast(maps, real_dtype(dtype))
        pooled = call.average([wide], regions, pooling)
        orientations = _Orientations(call.library, regions.boxes[:, 4], options.orientations)
        return check.cast(orientations.mixed(pooled), dtype)


@for_every_array
def riroi_align_rotated_backward(
    grad_output: ArrayT,
    rois: Any,
    input_shape: Sequence[int],
    spatial_scale: float,
    num_samples: int = 0,
    num_orientations: int = 8,
    clockwise: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`riroi_align_rotated` with respect to `features`."""
    with Call(RIROI_FORM, grad_output=grad_output, rois=rois) as call:
        options = _RiRoI.checked(spatial_scale, num_samples, num_orientations, clockwise)
        checked = call.checked_backward(options.definition, input_shape)
        gradient, regions, pooling, shape = checked
        options.check_channels("input_shape", shape)
        orientations = _Orientations(call.library, regions.boxes[:, 4], options.orientations)
        dtype = check.dtype_of(gradient)
        wide = check.cast(gradient, real_dtype(dtype))
        total = call.average_backward(orientations.transposed(wide), regions, pooling, shape)
        return check.cast(total, dtype)


@dataclass(eq=False, repr=False)
class RiRoIAlignRotated(CheckedLayer):
    """``mmcv.ops.RiRoIAlignRotated``: :func:`riroi_align_rotated` as a class."""

    out_size: int | Sequence[int]
    spatial_scale: float
    num_samples: int = 0
    num_orientations: int = 8
    clockwise: bool = False

    def forward(self, features: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `features`."""
        options = self.spatial_scale, self.num_samples, self.num_orientations, self.clockwise
        return riroi_align_rotated(features, rois, self.out_size, *options)

    if TYPE_CHECKING:
        __call__ = forward
