"""Deformable position-sensitive ROI pooling: moved bins, each pooled from channels of its own."""

from __future__ import annotations

from collections.abc import Sequence

from roipool import _arguments as check
from roipool._by_class import CallByClass
from roipool._definitions import Definition
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._types import AnyArray, ArrayT, Boxes, Numbers


def definition(
    spatial_scale: float,
    samples: int | Sequence[int],
    group_size: int | Sequence[int],
    gamma: float,
) -> Definition:
    """Return the definition with these options, checked."""
    return Definition(
        "deformable_ps_roi_pool",
        check.one_scale("spatial_scale", spatial_scale, "boxes are rounded before they are scaled"),
        check.sampling_pair("samples", samples, least=1),
        offset_factor=check.real_number("gamma", gamma),
        group_size=check.sampling_pair("group_size", group_size),
    )


@by_front_end
def deformable_ps_roi_pool(
    features: ArrayT,
    rois: Boxes,
    offsets: AnyArray,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    samples: int | Sequence[int] = 4,
    *,
    group_size: int | Sequence[int] = 0,
    gamma: float = 0.1,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each bin from channels of its own, as :func:`ps_roi_pool`, but move it by an offset.

    A bin moves by `gamma` times its offset times the side of the box. Its value is the mean of
    `samples` down by `samples` across, of which the first lies at its corner; those outside the map
    do not count.

    Parameters
    ----------
    features : ndarray
        Maps, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, H, W) or, with
        ``layout="NHWC"``, (N, H, W, C), where C is a multiple of the number of groups; float16,
        bfloat16, float32 or float64. Bins find their channels as in :func:`ps_roi_pool`.
    offsets : ndarray
        Offsets, to the right and down, of the parts of each box: shape
        (K, 2 * classes, part rows, part columns) or, with ``layout="NHWC"``,
        (K, part rows, part columns, 2 * classes). Bin (i, j) has the offset of part
        (i * part rows // rows, j * part columns // columns). The pooled channels are divided into
        classes of equal size, each with offsets of its own, of which 2 * q is to the right and
        2 * q + 1 down. A bin with a NaN offset is 0.
    spatial_scale : float
        Map cells per image pixel, for example 1/16: of rows and columns alike.
    samples : int or pair of int
        Samples per bin, (vertical, horizontal), from 1 to 32768.
    group_size : int or pair of int
        Groups of bins, (down, across); 0: as many as bins; 1: all bins read the same channels.
    layout : {"NCHW", "NHWC"}
        Order of the axes of `features`, `offsets` and the result.

    Returns
    -------
    ndarray
        Shape (K, C / groups, rows, columns), or (K, rows, columns, C / groups) for NHWC, in the
        features' dtype. A bin without samples on the map is 0.

    Raises
    ------
    ValueError
        If groups or classes do not divide the channels.

    See Also
    --------
    deformable_ps_roi_pool_backward, deformable_ps_roi_pool_backward_offsets : Gradients.
    ps_roi_pool : Bins that are not moved, pooled from whole cells.
    deform_roi_pool : Moved bins that all read the same channels, without rounding.

    Notes
    -----
    Box corners are rounded to image pixels (half away from zero), and the last row and column of
    pixels belong to the box, before they are scaled; a box is at least a tenth of a cell long. So
    boxes have no gradient. Channels of several classes are copied with ``layout="NHWC"``.

    Definition: Dai et al., "Deformable Convolutional Networks" (2017), as in its code, MXNet and
    OpenVINO.

    Examples
    --------
    On maps that rise by 1 per column, an offset of 1 moves a bin by a tenth of 4 cells:

    >>> import numpy as np, roipool
    >>> features = np.tile(np.arange(9, dtype=np.float32), (1, 4, 9, 1))
    >>> offsets = np.zeros((1, 2, 2, 2), np.float32)
    >>> offsets[0, 0, 1] = 1
    >>> roipool.deformable_ps_roi_pool(
    ...     features, [[0, 2, 2, 5, 5]], offsets, output_size=2, samples=2
    ... ).round(3)
    array([[[[2. , 4. ],
             [2.4, 4.4]]]], dtype=float32)
    """
    with CallByClass(
        features=features, rois=rois, offsets=offsets, batch_indices=batch_indices, out=out
    ) as call:
        placed = definition(spatial_scale, samples, group_size, gamma)
        return call.averages(call.request(placed, output_size, layout))


@by_front_end
def deformable_ps_roi_pool_backward(
    grad_output: ArrayT,
    rois: Boxes,
    offsets: AnyArray,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    samples: int | Sequence[int] = 4,
    *,
    group_size: int | Sequence[int] = 0,
    gamma: float = 0.1,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`deformable_ps_roi_pool` with respect to the features.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, shape (K, C / groups, rows, columns) or
        (K, rows, columns, C / groups); float16, bfloat16, float32 or float64.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output, offsets = np.ones((1, 1, 1, 1), np.float32), [[[[0.25]], [[0]]]]
    >>> roipool.deformable_ps_roi_pool_backward(
    ...     grad_output, [[0, 0, 0, 1, 1]], offsets, (1, 1, 2, 3), samples=1, gamma=1
    ... )
    array([[[[1., 0., 0.],
             [0., 0., 0.]]]], dtype=float32)
    """
    with CallByClass(
        grad_output=grad_output, rois=rois, offsets=offsets, batch_indices=batch_indices, out=out
    ) as call:
        placed = definition(spatial_scale, samples, group_size, gamma)
        return call.average_backward(*call.checked_backward(placed, input_shape, layout))


@by_front_end
def deformable_ps_roi_pool_backward_offsets(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    offsets: AnyArray,
    spatial_scale: float = 1.0,
    samples: int | Sequence[int] = 4,
    *,
    group_size: int | Sequence[int] = 0,
    gamma: float = 0.1,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`deformable_ps_roi_pool` with respect to the offsets.

    The number of samples on the map counts as constant. At a whole coordinate, where interpolation
    has a kink, and where a sample is held at the border of the map, the gradient is 0.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, shape (K, C / groups, rows, columns) or
        (K, rows, columns, C / groups).

    Returns
    -------
    ndarray
        The shape of `offsets`; float64 for float64 maps, else float32.

    Examples
    --------
    On a map that rises by 1 per column, an offset of 1 moves the bin by a tenth of 3 cells:

    >>> import numpy as np, roipool
    >>> features, offsets = np.tile(np.arange(9.0), (1, 1, 9, 1)), np.zeros((1, 2, 1, 1))
    >>> roipool.deformable_ps_roi_pool_backward_offsets(
    ...     np.ones((1, 1, 1, 1)), features, [[0, 2, 2, 4, 4]], offsets, samples=1
    ... ).ravel()
    array([0.3, 0. ])
    """
    with CallByClass(
        grad_output=grad_output,
        features=features,
        rois=rois,
        offsets=offsets,
        batch_indices=batch_indices,
    ) as call:
        placed = definition(spatial_scale, samples, group_size, gamma)
        return call.moved_backward_offsets(*call.checked_backward_boxes(placed, layout))
