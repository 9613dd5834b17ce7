"""Deformable ROI pooling: ROI align whose bins are moved, each by an offset of its own."""

from __future__ import annotations

from collections.abc import Sequence

from roipool import _arguments as check
from roipool._boxes import DEFORMED, weighted
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._front_ends import by_front_end
from roipool._layout import AXES, Layout
from roipool._pooling import Call
from roipool._types import AnyArray, ArrayT, Boxes, Numbers


def definition(
    spatial_scale: float | Sequence[float], sampling_ratio: int | Sequence[int], gamma: float
) -> Definition:
    """Return the definition with these options, checked."""
    return Definition(
        "deform_roi_pool",
        check.map_scale("spatial_scale", spatial_scale),
        check.sampling_pair("sampling_ratio", sampling_ratio),
        aligned=True,
        offset_factor=check.real_number("gamma", gamma),
    )


@by_front_end
def deform_roi_pool(
    features: ArrayT,
    rois: Boxes,
    offsets: AnyArray,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: AnyArray | None = None,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each box like :func:`roi_align`, but move every bin by an offset of its own.

    A bin moves by `gamma` times its offset times the side of the box. Networks predict offsets from
    the features of the box, and often a `mask` with a weight for each bin (modulated pooling).

    Parameters
    ----------
    offsets : ndarray
        The offset of every bin, to the right and down: shape (K, 2, rows, columns) or, with
        ``layout="NHWC"``, (K, rows, columns, 2). A bin with a NaN offset is 0.
    mask : ndarray, optional
        Multiplies the pooled values: shape (K, 1, rows, columns), or (K, rows, columns, 1) for
        NHWC.
    layout : {"NCHW", "NHWC"}
        Order of the axes of `features`, `offsets`, `mask` and the result.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype.
        A bin without samples is 0.

    See Also
    --------
    deform_roi_pool_backward, deform_roi_pool_backward_rois : Gradients.
    deform_roi_pool_backward_offsets, deform_roi_pool_backward_mask : Gradients.
    roi_align : The same with offsets of 0, and ``aligned=True``.

    Notes
    -----
    Definition: Dai et al., "Deformable Convolutional Networks" (2017), with the samples of
    :func:`roi_align`; mask: Zhu et al., "Deformable ConvNets v2" (2019). It is that of mmcv's
    ``DeformRoIPool``, which counts adaptive samples in float32:
    :func:`roipool.compat.mmcv.deform_roi_pool`.

    Examples
    --------
    On a map that rises by 1 per column, an offset of 1 moves a bin by a tenth of 4 cells:

    >>> import numpy as np, roipool
    >>> features = np.tile(np.arange(9, dtype=np.float32), (1, 1, 9, 1))
    >>> offsets = np.zeros((1, 2, 2, 2), np.float32)
    >>> offsets[0, 0, 1] = 1
    >>> roipool.deform_roi_pool(features, [[0, 2, 2, 6, 6]], offsets, output_size=2).round(3)
    array([[[[2.5, 4.5],
             [2.9, 4.9]]]], dtype=float32)
    """
    with Call(
        DEFORMED,
        features=features,
        rois=rois,
        offsets=offsets,
        mask=mask,
        batch_indices=batch_indices,
        out=out,
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, gamma)
        maps, regions, pooling = call.checked_forward(placed, output_size, layout)
        weights = call.mask(regions, pooling)
        pooled = call.average([maps], regions, pooling)
        return pooled if weights is None else weighted(pooled, weights, pooled)


@by_front_end
def deform_roi_pool_backward(
    grad_output: ArrayT,
    rois: Boxes,
    offsets: AnyArray,
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: AnyArray | None = None,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`deform_roi_pool` with respect to the features.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output, offsets = np.ones((1, 1, 1, 1), np.float32), [[[[0.25]], [[0]]]]
    >>> roipool.deform_roi_pool_backward(
    ...     grad_output, [[0, 0, 0, 2, 2]], offsets, (1, 1, 2, 3), sampling_ratio=1, gamma=1
    ... )
    array([[[[0. , 0.5, 0. ],
             [0. , 0.5, 0. ]]]], dtype=float32)
    """
    with Call(
        DEFORMED,
        grad_output=grad_output,
        rois=rois,
        offsets=offsets,
        mask=mask,
        batch_indices=batch_indices,
        out=out,
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, gamma)
        gradient, regions, pooling, shape = call.checked_backward(placed, input_shape, layout)
        own = call.masked(gradient, regions, pooling)
        return call.average_backward(own, regions, pooling, shape)


@by_front_end
def deform_roi_pool_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    offsets: AnyArray,
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: AnyArray | None = None,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`deform_roi_pool` with respect to the boxes.

    It is the derivative of each interpolated sample by its position, times the derivative of the
    position by the coordinates of the box, which also scale the offsets. An adaptive number of
    samples counts as constant. At a whole coordinate, where interpolation has a kink, it is the
    derivative to the right.

    Examples
    --------
    On a map that rises by 1 per column, moving both sides of the box to the right by 1 adds 1. With
    an offset of a quarter of the box, the right side counts for more:

    >>> import numpy as np, roipool
    >>> features, offsets = np.tile(np.arange(9.0), (1, 1, 9, 1)), [[[[0.25]], [[0.0]]]]
    >>> roipool.deform_roi_pool_backward_rois(
    ...     np.ones((1, 1, 1, 1)), features, [[0, 2, 2, 4, 4]], offsets, sampling_ratio=1, gamma=1
    ... )
    array([[0.25, 0.  , 0.75, 0.  ]])
    """
    with Call(
        DEFORMED,
        grad_output=grad_output,
        features=features,
        rois=rois,
        offsets=offsets,
        mask=mask,
        batch_indices=batch_indices,
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, gamma)
        return call.moved_backward_corners(*call.checked_backward_boxes(placed, layout))


@by_front_end
def deform_roi_pool_backward_offsets(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    offsets: AnyArray,
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    mask: AnyArray | None = None,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`deform_roi_pool` with respect to the offsets.

    At a whole coordinate, where interpolation has a kink, it is the derivative to the right or
    down. A sample that is held at the border of the map does not change with its position.

    Returns
    -------
    ndarray
        The shape of `offsets`; float64 for float64 maps, else float32.

    Examples
    --------
    On a map that rises by 1 per column, an offset of 1 moves the bin by a tenth of 2 cells:

    >>> import numpy as np, roipool
    >>> features, offsets = np.tile(np.arange(9.0), (1, 1, 9, 1)), np.zeros((1, 2, 1, 1))
    >>> roipool.deform_roi_pool_backward_offsets(
    ...     np.ones((1, 1, 1, 1)), features, [[0, 2, 2, 4, 4]], offsets, sampling_ratio=1
    ... ).ravel()
    array([0.2, 0. ])
    """
    with Call(
        DEFORMED,
        grad_output=grad_output,
        features=features,
        rois=rois,
        offsets=offsets,
        mask=mask,
        batch_indices=batch_indices,
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, gamma)
        return call.moved_backward_offsets(*call.checked_backward_boxes(placed, layout))


@by_front_end
def deform_roi_pool_backward_mask(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    offsets: AnyArray,
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`deform_roi_pool` with respect to the mask.

    It is the sum over the channels of `grad_output` times the pooled values without a mask.

    Returns
    -------
    ndarray
        Shape (K, 1, rows, columns), or (K, rows, columns, 1) for NHWC, in grad_output's dtype.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features, offsets = np.full((1, 3, 5, 5), 2.0), np.zeros((1, 2, 1, 1))
    >>> roipool.deform_roi_pool_backward_mask(
    ...     np.ones((1, 3, 1, 1)), features, [[0, 1, 1, 3, 3]], offsets
    ... )
    array([[[[6.]]]])
    """
    with Call(
        DEFORMED,
        grad_output=grad_output,
        features=features,
        rois=rois,
        offsets=offsets,
        batch_indices=batch_indices,
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, gamma)
        gradient, maps, regions, pooling = call.checked_backward_boxes(placed, layout)
        pooled = call.average(maps, regions, pooling)
        own, library = check.dtype_of(pooled), call.library
        products = weighted(library.astype(pooled, real_dtype(own)), gradient)
        channel, *_ = AXES[pooling.layout]
        return library.astype(products.sum(axis=channel, keepdims=True), own)
