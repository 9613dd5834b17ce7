"""MegEngine's ``roi_pooling``, ``roi_align`` and ``deformable_psroi_pooling``, as on its CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from roipool import _arguments as check
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat import _deformable_ps as deformable

MegEngineMode: TypeAlias = Literal["average", "max"]
_MODES: tuple[MegEngineMode, ...] = get_args(MegEngineMode)
_RULES = conventions.FROM_LOWEST_FLOAT32._replace(outside_is_zero=True)
_CELLS = conventions.CELLS_FROM_LOWEST_FLOAT32
FORM = Form(size="output_shape", features="inp", read=conventions.numbered_boxes)
DEFORMABLE_FORM = FORM._replace(size="pooled_h and pooled_w", offsets="trans")


def _cells(mode: str, scale: float, *, gathers: bool = False) -> Definition:
    check.choice("mode", mode, _MODES)
    name = "caffe_roi_pool_gather" if gathers else "roi_pool"
    return Definition(name, conventions.float32_number("scale", scale))


@for_every_array
@publishes_gradient()
def roi_pooling(
    inp: ArrayT,
    rois: Any,
    output_shape: int | Sequence[int],
    mode: MegEngineMode = "max",
    scale: float = 1.0,
) -> ArrayT:
    """ROI pooling as ``megengine.functional.vision.roi_pooling``.

    Parameters
    ----------
    mode : {"max", "average"}
        The largest of a bin's cells, or their mean.
    scale : float
        Map cells per image pixel, kept in float32.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). A bin without cells is 0; a maximum of only NaN is -3.4e38.

    See Also
    --------
    roipool.roi_pool : The same maximum.
    roipool.roi_average_pool : A mean whose last row and column do not belong to the box.

    Notes
    -----
    Boxes are rounded, halves away from 0, and their last row and column belong to them, as in
    Caffe. NaN and infinite boxes are pooled to 0; MegEngine converts infinite ends to integers,
    which is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import megengine
    >>> inp = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> megengine.roi_pooling(inp, [[0, 1, 1, 3, 3]], 2, "average")
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    with Call(FORM, inp=inp, rois=rois) as call:
        checked = call.checked_forward(_cells(mode, scale), output_shape, rules=_CELLS)
        maps, regions, pooling = checked
        if mode == "max":
            return call.maximum(maps, regions, pooling, return_argmax=False)[0]
        return call.average([maps], regions, pooling)


@for_every_array
def roi_pooling_backward(
    grad_output: ArrayT,
    inp: ArrayT,
    rois: Any,
    mode: MegEngineMode = "max",
    scale: float = 1.0,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_pooling` with respect to `inp` (zero for `rois`).

    As in Caffe, only cells within a box's rounded ends get a gradient: a reversed box, which the
    forward pools as one cell, gives none.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in the dtype of `inp`.
    exact_gradient : bool
        Return the derivative of the forward.

    Returns
    -------
    ndarray
        The shape of `inp`.
    """
    with Call(FORM, grad_output=grad_output, inp=inp, rois=rois) as call:
        is_exact = check.flag("exact_gradient", exact_gradient)
        placed = _cells(mode, scale)
        gradient, (maps,), regions, pooling = call.checked_backward_boxes(placed, rules=_CELLS)
        gathered = pooling._replace(definition=_cells(mode, scale, gathers=not is_exact))
        if mode == "average":
            return call.average_backward(gradient, regions, gathered, maps.shape)
        _, argmax = call.maximum(maps, regions, pooling)
        return call.maximum_backward(gradient, argmax, regions, gathered, maps.shape)


def _definition(
    mode: str, spatial_scale: float, sample_points: int | Sequence[int], aligned: bool
) -> Definition:
    check.choice("mode", mode, _MODES)
    return Definition(
        "megengine_roi_align",
        conventions.float32_number("spatial_scale", spatial_scale),
        check.sampling_pair("sample_points", sample_points),
        check.flag("aligned", aligned),
    )


@for_every_array
def roi_align(
    inp: ArrayT,
    rois: Any,
    output_shape: int | Sequence[int],
    mode: MegEngineMode = "average",
    spatial_scale: float = 1.0,
    sample_points: int | Sequence[int] = 2,
    aligned: bool = True,
) -> ArrayT:
    """ROI align as ``megengine.functional.vision.roi_align``.

    Parameters
    ----------
    mode : {"average", "max"}
        The mean of a bin's samples, or the largest one.
    sample_points : int or (int, int)
        Samples per bin and axis, down and across. Without samples (0) an average is 0, and a
        maximum the lowest float32.

    See Also
    --------
    roipool.roi_align : The same inside the map, for boxes of one cell or more.

    Notes
    -----
    Cells outside the map are 0: the map fades over one cell beyond its outermost cell centres.
    Boxes may be shorter than a cell; a reversed side has length 0. NaN and infinite boxes are
    pooled to 0.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import megengine
    >>> inp = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> megengine.roi_align(inp, [[0, -1, 1, 3, 3]], 2, aligned=False)
    array([[[[ 6.625, 10.5  ],
             [10.375, 15.5  ]]]], dtype=float32)
    """
    with Call(FORM, inp=inp, rois=rois) as call:
        placed = _definition(mode, spatial_scale, sample_points, aligned)
        has_samples = all(placed.sampling)
        empty_value = _RULES.lowest if mode == "max" and not has_samples else 0.0
        checked = call.checked_forward(placed, output_shape, empty_value=empty_value, rules=_RULES)
        maps, regions, pooling = checked
        if mode == "max":
            return call.maximum(maps, regions, pooling, return_argmax=False)[0]
        return call.average([maps], regions, pooling)


@for_every_array
def roi_align_backward(
    grad_output: ArrayT,
    inp: ArrayT,
    rois: Any,
    mode: MegEngineMode = "average",
    spatial_scale: float = 1.0,
    sample_points: int | Sequence[int] = 2,
    aligned: bool = True,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` with respect to `inp` (zero for `rois`).

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in the dtype of `inp`.

    Returns
    -------
    ndarray
        The shape of `inp`.
    """
    with Call(FORM, grad_output=grad_output, inp=inp, rois=rois) as call:
        placed = _definition(mode, spatial_scale, sample_points, aligned)
        gradient, (maps,), regions, pooling = call.checked_backward_boxes(placed, rules=_RULES)
        if mode == "average":
            return call.average_backward(gradient, regions, pooling, maps.shape)
        _, argmax = call.maximum(maps, regions, pooling)
        return call.maximum_backward(gradient, argmax, regions, pooling, maps.shape)


def _deformable(
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float,
) -> tuple[Definition, tuple[int, int]]:
    """Return the definition, and the rows and columns of bins, which are those of parts."""
    size = check.size_pair("pooled_h and pooled_w", (pooled_h, pooled_w))
    if check.size_pair("part_size", part_size) != size:
        raise ValueError(
            f"part_size must be pooled_h and pooled_w, {size[0]} and {size[1]}: MegEngine reads "
            f"offsets of other parts from wrong places; got {part_size}"
        )
    definition = deformable.placed(
        conventions.float32_number("spatial_scale", spatial_scale),
        check.sampling_pair("sample_per_part", sample_per_part, least=1),
        (1, 1),
        conventions.float32_number("trans_std", trans_std),
    )
    return definition, size


@for_every_array
def deformable_psroi_pooling(
    inp: ArrayT,
    rois: Any,
    trans: ArrayT | None,
    no_trans: bool,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> ArrayT:
    """Deformable ROI pooling as ``megengine.functional.nn.deformable_psroi_pooling``.

    In spite of its name it is not position-sensitive: all bins read the same channels.

    Parameters
    ----------
    trans : ndarray or None
        Offsets of bins, shape (K, 2, pooled_h, pooled_w): to the right, then down. None only with
        `no_trans`.
    no_trans : bool
        Whether no bin moves; `trans` is then not read.
    part_size : int
        The same as `pooled_h` and `pooled_w`.
    pooled_h, pooled_w : int
        Rows and columns of bins.
    sample_per_part : int
        Samples per bin, down and across.
    trans_std : float
        Multiplies offsets to give shares of the box's sides; kept in float32.

    Returns
    -------
    ndarray
        Shape (K, C, pooled_h, pooled_w).

    See Also
    --------
    roipool.deformable_ps_roi_pool : The same with ``group_size=1``.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import megengine
    >>> inp = np.tile(np.arange(9, dtype=np.float32), (1, 1, 9, 1))
    >>> trans = np.array([[[[0, 1], [0, 1]], [[0, 0], [0, 0]]]], np.float32)
    >>> megengine.deformable_psroi_pooling(
    ...     inp, [[0, 2, 2, 5, 5]], trans, False, 2, 2, 2, 2, 1.0
    ... ).round(3)
    array([[[[2. , 4.4],
             [2. , 4.4]]]], dtype=float32)
    """
    trans = deformable.offsets_unless(no_trans, "trans", trans)
    with deformable.ExactCall(DEFORMABLE_FORM, inp=inp, rois=rois, trans=trans) as call:
        placed, size = _deformable(
            part_size, pooled_h, pooled_w, sample_per_part, spatial_scale, trans_std
        )
        maps, regions, pooling = call.checked_forward(placed, size)
        call.check_part_size(size)
        return call.average([maps], regions, pooling)


@for_every_array
def deformable_psroi_pooling_backward(
    grad_output: ArrayT,
    rois: Any,
    trans: ArrayT | None,
    input_shape: Sequence[int],
    no_trans: bool,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> ArrayT:
    """Return the gradient of :func:`deformable_psroi_pooling` with respect to `inp`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, pooled_h, pooled_w).
    """
    trans = deformable.offsets_unless(no_trans, "trans", trans)
    arrays = {"grad_output": grad_output, "rois": rois, "trans": trans}
    with deformable.ExactCall(DEFORMABLE_FORM, **arrays) as call:
        placed, size = _deformable(
            part_size, pooled_h, pooled_w, sample_per_part, spatial_scale, trans_std
        )
        gradient, regions, pooling, shape = call.checked_backward(placed, input_shape)
        call.check_part_size(size)
        conventions.check_bins("grad_output", gradient, size, "pooled_h and pooled_w")
        return call.average_backward(gradient, regions, pooling, shape)


@for_every_array
def deformable_psroi_pooling_backward_trans(
    grad_output: ArrayT,
    inp: ArrayT,
    rois: Any,
    trans: ArrayT,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> ArrayT:
    """Return the gradient of :func:`deformable_psroi_pooling` with respect to `trans`.

    As in MegEngine it is 0 for a sample at a whole coordinate, where interpolation has a kink.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, pooled_h, pooled_w), in the dtype of `inp`.

    Returns
    -------
    ndarray
        The shape of `trans`; float64 for float64 maps, else float32.
    """
    arrays = {"grad_output": grad_output, "inp": inp, "rois": rois, "trans": trans}
    with deformable.ExactCall(DEFORMABLE_FORM, **arrays) as call:
        placed, size = _deformable(
            part_size, pooled_h, pooled_w, sample_per_part, spatial_scale, trans_std
        )
        gradient, maps, regions, pooling = call.checked_backward_boxes(placed)
        call.check_part_size(size)
        conventions.check_bins("grad_output", gradient, size, "pooled_h and pooled_w")
        return call.moved_backward_offsets(gradient, maps, regions, pooling)
