"""mmcv's operators: ROI align and pooling, precise, deformable, and of rotated boxes (mmcv/ops).

The maximum of `roi_align` starts at -10000 in the CPU operator and at -3.4e38 in the CUDA operator.
As in mmcv, an adaptive number of samples is computed in float32 even for float64 maps. Aligned
reversed boxes, which the CPU operator refuses, are pooled as by the CUDA operator. A batch index
outside the batch, which mmcv does not check, is a ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._request import MaxRules
from roipool._types import ArrayT, Mode
from roipool.compat import _conventions as conventions
from roipool.compat import _mmcv_deform, _mmcv_rotated, torchvision
from roipool.compat._conventions import CELLS_FROM_LOWEST_FLOAT32
from roipool.compat._layers import CheckedLayer, Layer
from roipool.compat._mmcv_deform import (
    DeformRoIPool,
    deform_roi_pool,
    deform_roi_pool_backward,
    deform_roi_pool_backward_offset,
)
from roipool.compat._mmcv_rotated import (
    RiRoIAlignRotated,
    RoIAlignRotated,
    riroi_align_rotated,
    riroi_align_rotated_backward,
    roi_align_rotated,
    roi_align_rotated_backward,
)

__all__ = [
    "DeformRoIPool",
    "PrRoIPool",
    "RiRoIAlignRotated",
    "RoIAlign",
    "RoIAlignRotated",
    "RoIPool",
    "deform_roi_pool",
    "deform_roi_pool_backward",
    "deform_roi_pool_backward_offset",
    "prroi_pool",
    "prroi_pool_backward",
    "prroi_pool_backward_rois",
    "riroi_align_rotated",
    "riroi_align_rotated_backward",
    "roi_align",
    "roi_align_backward",
    "roi_align_rotated",
    "roi_align_rotated_backward",
    "roi_pool",
    "roi_pool_backward",
]

PRECISE_FORM = Form(read=conventions.numbered_boxes)
FORM, DEFORM_FORM = _mmcv_deform.FORM, _mmcv_deform.DEFORM_FORM
ROTATED_FORM, RIROI_FORM = _mmcv_rotated.ROTATED_FORM, _mmcv_rotated.RIROI_FORM
_MODES: tuple[Mode, ...] = ("max", "avg")
Operator: TypeAlias = Literal["cpu", "cuda"]
# Where the maximum of each operator starts.
_LOWEST: dict[Operator, float] = {"cpu": -10000.0, "cuda": float(np.finfo(np.float32).min)}
_RULES = MaxRules(outside_is_zero=True)


def _operator(operator: Operator | None) -> Operator | None:
    return None if operator is None else check.choice("operator", operator, tuple(_LOWEST))


def _lowest(operator: Operator | None, call: Call) -> float:
    """Return where a maximum starts: as in the operator for the device, unless one is named."""
    return _LOWEST[_operator(operator) or ("cpu" if call.is_on_host else "cuda")]


def _align(spatial_scale: float, sampling_ratio: int, aligned: bool) -> Definition:
    return conventions.roi_align_definition(
        conventions.float32_number("spatial_scale", spatial_scale),
        sampling_ratio,
        aligned,
        definition="mmcv_roi_align",
    )


@for_every_array
@publishes_gradient("argmax_y", "argmax_x", when={"pool_mode": "max"})
def roi_align(
    input: ArrayT,
    rois: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: Mode = "avg",
    aligned: bool = True,
    *,
    return_argmax: bool = False,
    operator: Operator | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT, ArrayT]:
    """ROI align as ``mmcv.ops.roi_align``, by average or maximum.

    Parameters
    ----------
    pool_mode : {"avg", "max"}
        How the samples of a bin are reduced. In "max" a sample outside the map takes part as 0, and
        a bin of no sample, or none above it, is the value that the maximum starts at.
    return_argmax : bool
        Also return what the operator keeps for its backward; needs ``pool_mode="max"``.
    operator : {"cpu", "cuda"}, optional
        Whose maximum: that of mmcv's CPU operator starts at -10000, that of its CUDA operator at
        -3.4e38. The default is that of the arrays' device.

    Returns
    -------
    ndarray or (ndarray, ndarray, ndarray)
        Shape (K, C, rows, columns); then row and column of the winning sample in map cells, also
        where it lies outside; -1 for none. They are float32 (float64 for float64 maps).

    Notes
    -----
    Cells with a weight of exactly 0 are not read: see :func:`roipool.compat.torchvision.roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmcv
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mmcv.roi_align(input, [[0, 1, 1, 3, 3]], 2, sampling_ratio=2, pool_mode="max")
    array([[[[ 8.5,  9.5],
             [13.5, 14.5]]]], dtype=float32)
    """
    with Call(FORM, input=input, rois=rois) as call:
        definition = _align(spatial_scale, sampling_ratio, aligned)
        mode = check.choice("pool_mode", pool_mode, _MODES)
        lowest = _lowest(operator, call)
        want_argmax = check.flag("return_argmax", return_argmax)
        if mode == "avg":
            if want_argmax:
                raise ValueError("return_argmax must be False with pool_mode='avg'")
            return call.averages(call.request(definition, output_size))
        maps, regions, pooling = call.checked_forward(
            definition, output_size, empty_value=lowest, rules=_RULES._replace(lowest=lowest)
        )
        pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
        if not want_argmax:
            return pooled
        y, x = call.argmax_positions(argmax, regions, pooling, maps.shape)
        # Without an argmax, unlike with the zero of an outside sample, the value stays where it
        # started.
        no_argmax = (argmax < 0) & (check.cast(pooled, check.dtype_of(y)) < 0)
        where, none = call.library.xp().where, conventions.scalar_of(y)(-1)
        return pooled, where(no_argmax, none, y), where(no_argmax, none, x)


@for_every_array
def roi_align_backward(
    grad_output: ArrayT,
    rois: Any,
    argmax_y: ArrayT | None,
    argmax_x: ArrayT | None,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: Mode = "avg",
    aligned: bool = True,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` with respect to `input`.

    Parameters
    ----------
    argmax_y, argmax_x : ndarray or None
        The positions of the argmax from the forward; None with ``pool_mode="avg"``.
    exact_gradient : bool
        The original loses the gradient of an argmax at exactly y = -1, its marker for no
        argmax. True keeps this gradient.
    """
    with Call(
        FORM, grad_output=grad_output, rois=rois, argmax_y=argmax_y, argmax_x=argmax_x
    ) as call:
        definition = _align(spatial_scale, sampling_ratio, aligned)
        exact = check.flag("exact_gradient", exact_gradient)
        if check.choice("pool_mode", pool_mode, _MODES) == "avg":
            if argmax_y is not None or argmax_x is not None:
                raise ValueError("argmax_y and argmax_x must be None with pool_mode='avg'")
            return call.average_backward(*call.checked_backward(definition, input_shape))
        if argmax_y is None or argmax_x is None:
            raise TypeError("argmax_y and argmax_x must be given with pool_mode='max'")
        checked = call.checked_backward(definition, input_shape, rules=_RULES)
        gradient, regions, pooling, shape = checked
        y = check.same_shape("argmax_y", argmax_y, gradient)
        x = check.same_shape("argmax_x", argmax_x, gradient)
        numbers = call.argmax_at(y, x, regions, pooling, shape)
        lost = (y == -1) & (x == -1) if exact else y == -1
        numbers = call.library.xp().where(lost, np.int64(-1), numbers)
        return call.maximum_backward(gradient, numbers, regions, pooling, shape)


class RoIAlign(Layer):
    """``mmcv.ops.RoIAlign``: :func:`roi_align` as a class.

    With `use_torchvision` the result is torchvision's average, whatever `pool_mode` is. `operator`,
    which mmcv's class lacks, is that of :func:`roi_align`.
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        pool_mode: Mode = "avg",
        aligned: bool = True,
        use_torchvision: bool = False,
        *,
        operator: Operator | None = None,
    ) -> None:
        self.output_size: tuple[int, int] = check.size_pair("output_size", output_size)
        self.spatial_scale: float = check.real_number("spatial_scale", spatial_scale)
        self.sampling_ratio: int = check.whole_number("sampling_ratio", sampling_ratio)
        self.pool_mode: Mode = check.choice("pool_mode", pool_mode, _MODES)
        self.aligned: bool = check.flag("aligned", aligned)
        self.use_torchvision: bool = check.flag("use_torchvision", use_torchvision)
        self._operator = _operator(operator)

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        options = (self.output_size, self.spatial_scale, self.sampling_ratio)
        if self.use_torchvision:
            return torchvision.roi_align(input, rois, *options, self.aligned)
        pooled = roi_align(
            input, rois, *options, self.pool_mode, self.aligned, operator=self._operator
        )
        assert not isinstance(pooled, tuple)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward


@for_every_array
@publishes_gradient("argmax")
def roi_pool(
    input: ArrayT,
    rois: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling as ``mmcv.ops.roi_pool`` (CUDA only there).

    Unlike Caffe's layer, it rounds the edges of bins but no coordinates. Empty boxes are skipped:
    their values and their argmax are 0.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); the argmax is int32 ``y * W + x``, -1 for an empty bin,
        0 throughout a box that was skipped.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmcv
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mmcv.roi_pool(input, [[0, 1, 1, 3, 3]], 2)
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    with Call(FORM, input=input, rois=rois) as call:
        scale = conventions.float32_number("spatial_scale", spatial_scale)
        maps, regions, pooling = call.checked_forward(
            Definition("mmcv_roi_pool", scale), output_size, rules=CELLS_FROM_LOWEST_FLOAT32
        )
        want_argmax = check.flag("return_argmax", return_argmax)
        pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
        if not want_argmax:
            return pooled
        skipped = _skipped(regions.boxes, scale)
        return pooled, call.library.xp().where(skipped, conventions.scalar_of(argmax)(0), argmax)


def _skipped(boxes: Array, scale: float) -> Array:
    """Return which boxes the original passes over, as (K, 1, 1, 1); their buffers stay zero."""
    real = conventions.scalar_of(boxes)
    with np.errstate(invalid="ignore", over="ignore"):
        extent = (boxes[:, 2:] + real(1)) * real(scale) - boxes[:, :2] * real(scale)
    return ((extent[:, 0] <= 0) | (extent[:, 1] <= 0))[:, None, None, None]


@for_every_array
def roi_pool_backward(
    grad_output: ArrayT,
    rois: Any,
    argmax: ArrayT,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_pool` with respect to `input`.

    As in the original, a skipped box, whose argmax is 0, adds its gradient to cell 0.

    Parameters
    ----------
    exact_gradient : bool
        Give skipped boxes no gradient: the derivative of the forward.
    """
    with Call(FORM, grad_output=grad_output, rois=rois, argmax=argmax) as call:
        scale = conventions.float32_number("spatial_scale", spatial_scale)
        placed = Definition("mmcv_roi_pool", scale)
        checked = call.checked_backward(placed, input_shape, rules=CELLS_FROM_LOWEST_FLOAT32)
        gradient, regions, pooling, shape = checked
        cells = check.same_shape("argmax", argmax, gradient)
        has_cells = shape[2] * shape[3] > 0  # else there is no cell 0 for skipped boxes
        if check.flag("exact_gradient", exact_gradient) or not has_cells:
            skipped = _skipped(regions.boxes, scale)
            if check.dtype_of(cells).kind == "u":  # which has no -1
                cells = check.cast(cells, check.INT64)
            cells = call.library.xp().where(skipped, np.int64(-1), cells)
        return call.maximum_backward(gradient, cells, regions, pooling, shape)


@dataclass(eq=False, repr=False)
class RoIPool(CheckedLayer):
    """``mmcv.ops.RoIPool``: :func:`roi_pool` as a class."""

    output_size: int | Sequence[int]
    spatial_scale: float = 1.0

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        pooled = roi_pool(input, rois, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward


@for_every_array
def prroi_pool(
    features: ArrayT, rois: Any, output_size: int | Sequence[int], spatial_scale: float = 1.0
) -> ArrayT:
    """Precise ROI pooling as ``mmcv.ops.prroi_pool`` (CUDA and float32 only there).

    The original adds up terms of about 1 before it divides them by the area of a bin: in bins of
    0.02 x 0.02 cells its values are off in the fourth digit, and the gradient of the boxes by
    several per cent. Here both are accurate to a few roundings.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns); 0 for a box without area, or reversed.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmcv
    >>> features = np.array([[[[1, 2], [3, 4]]]], np.float32)
    >>> mmcv.prroi_pool(features, [[0, 0, 0, 1, 1]], 2)
    array([[[[1.75, 2.25],
             [2.75, 3.25]]]], dtype=float32)
    """
    with Call(PRECISE_FORM, features=features, rois=rois) as call:
        definition = conventions.precise_definition(spatial_scale)
        return call.averages(call.request(definition, output_size))


@for_every_array
def prroi_pool_backward(
    grad_output: ArrayT, rois: Any, input_shape: Sequence[int], spatial_scale: float = 1.0
) -> ArrayT:
    """Return the gradient of :func:`prroi_pool` with respect to `features`."""
    with Call(PRECISE_FORM, grad_output=grad_output, rois=rois) as call:
        definition = conventions.precise_definition(spatial_scale)
        return call.average_backward(*call.checked_backward(definition, input_shape))


@for_every_array
def prroi_pool_backward_rois(
    grad_output: ArrayT, features: ArrayT, rois: Any, spatial_scale: float = 1.0
) -> ArrayT:
    """Return the gradient of :func:`prroi_pool` with respect to `rois`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in the dtype of `features`.

    Returns
    -------
    ndarray
        Shape (K, 4): by x1, y1, x2, y2. The original writes zeros for the batch index before them.
    """
    with Call(PRECISE_FORM, grad_output=grad_output, features=features, rois=rois) as call:
        definition = conventions.precise_definition(spatial_scale)
        return call.average_backward_boxes(*call.checked_backward_boxes(definition))


@dataclass(eq=False, repr=False)
class PrRoIPool(CheckedLayer):
    """``mmcv.ops.PrRoIPool``: :func:`prroi_pool` as a class."""

    output_size: int | Sequence[int]
    spatial_scale: float = 1.0

    def forward(self, features: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `features`."""
        return prroi_pool(features, rois, self.output_size, self.spatial_scale)

    if TYPE_CHECKING:
        __call__ = forward
