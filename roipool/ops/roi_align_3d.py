"""ROI align of volumes: the average of trilinear samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._dtypes import FLOATS_AND_INTEGERS
from roipool._front_ends import by_front_end
from roipool._layout import VolumeLayout
from roipool._types import AnyArray, ArrayT, Boxes, Numbers
from roipool._volumes import VolumeCall, place


def definition(
    spatial_scale: Sequence[float],
    sampling_ratio: Sequence[int],
    aligned: bool,
    planes: int,
    depth: int,
) -> Definition:
    """Return the definition with these options, checked, for `planes` planes and `depth` bins."""
    return place(
        check.scale_triple("spatial_scale", spatial_scale),
        check.sampling_triple("sampling_ratio", sampling_ratio),
        check.flag("aligned", aligned),
        planes,
        depth,
    )


@by_front_end
def roi_align_3d(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: VolumeLayout = "NCDHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each box of a volume to a fixed grid from trilinear samples, without rounding the box.

    The rule of :func:`roi_align` along three axes: each bin has a regular grid of samples, and
    each sample interpolates between the eight nearest cells. Up to one cell outside the volume,
    samples read the border cells; beyond that, they are 0.

    Parameters
    ----------
    features : ndarray
        Volumes, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, D, H, W) or, with
        ``layout="NDHWC"``, (N, D, H, W, C); float16, bfloat16, float32 or float64, or scans of
        int16, uint16, int8, uint8 or bool, which are pooled to float32.
    rois : array_like
        Boxes in voxels of the image: shape (K, 7) with rows batch index, x1, y1, z1, x2, y2, z2;
        or (K, 6) without the index and `batch_indices`; or a sequence of N arrays of shape (L, 6),
        one per image. x is the position along W, y along H, z along D.
    output_size : int or three ints
        Bins of the output, (depth, rows, columns); one int sets all.
    spatial_scale : float or three floats
        Cells of the features per voxel of the image, along (depth, rows, columns), for example
        (1, 1/4, 1/4).
    sampling_ratio : int or three ints
        Samples per bin along (depth, rows, columns), up to 32768; 0 is adaptive: as many as the bin
        is long in cells, rounded up, but at most 2**22.
    aligned : bool
        Shift boxes by half a cell, so that a scaled box from 0 to 1 covers cell 0. False is the
        older convention, in which boxes are at least one cell long.
    batch_indices : array_like of int, optional
        Shape (K,): the image index of each box, for `rois` of shape (K, 6).
    layout : {"NCDHW", "NDHWC"}
        Order of the axes of `features` and of the result.

    Returns
    -------
    ndarray
        Shape (K, C, depth, rows, columns), or (K, depth, rows, columns, C) for NDHWC, in the
        features' dtype, or float32 for integers. A bin without samples (an empty box with an
        adaptive grid) is 0.

    See Also
    --------
    roi_align_3d_backward, roi_align_3d_backward_rois : The gradients.
    roi_align : The same on maps.

    Notes
    -----
    Samples at NaN or infinite coordinates are outside the volume. A reversed side is mirrored with
    a fixed `sampling_ratio`, and makes the box 0 with an adaptive one; if not `aligned`, it is one
    cell long. float16 and bfloat16 volumes are computed in float32 and rounded once. Definition:
    ROI align of He et al., "Mask R-CNN" (2017), along a third axis, as in Jaeger et al., "Retina
    U-Net" (2018).

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
    >>> roipool.roi_align_3d(features, [[0, 1, 1, 0, 3, 3, 4]], output_size=(1, 2, 2))
    array([[[[[29., 30.],
              [33., 34.]]]]], dtype=float32)
    """
    arrays = {"features": features, "rois": rois, "batch_indices": batch_indices, "out": out}
    with VolumeCall(layout, (spatial_scale, sampling_ratio, aligned), **arrays) as call:
        return call.forward(output_size, FLOATS_AND_INTEGERS)


@by_front_end
def roi_align_3d_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: VolumeLayout = "NCDHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_align_3d` with respect to the features.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, shape (K, C, depth, rows, columns) or
        (K, depth, rows, columns, C); float16, bfloat16, float32 or float64.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 1, 1), np.float32)
    >>> rois, input_shape = [[0, 0, 0, 0, 2, 1, 2]], (1, 1, 2, 1, 3)
    >>> roipool.roi_align_3d_backward(grad_output, rois, input_shape)
    array([[[[[0.25, 0.25, 0.  ]],
    <BLANKLINE>
             [[0.25, 0.25, 0.  ]]]]], dtype=float32)
    """
    arrays = {"grad_output": grad_output, "rois": rois, "batch_indices": batch_indices, "out": out}
    with VolumeCall(layout, (spatial_scale, sampling_ratio, aligned), **arrays) as call:
        return call.backward(input_shape)


@overload
def roi_align_3d_backward_rois(
    grad_output: NDArray[Any],
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    batch_indices: Numbers | None = ...,
    layout: VolumeLayout = ...,
) -> NDArray[np.floating[Any]]: ...
@overload
def roi_align_3d_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    batch_indices: Numbers | None = ...,
    layout: VolumeLayout = ...,
) -> ArrayT: ...
@by_front_end
def roi_align_3d_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: VolumeLayout = "NCDHW",
) -> ArrayT:
    """Return the gradient of :func:`roi_align_3d` with respect to the boxes.

    It is the derivative of each interpolated sample by its position, times the derivative of the
    position by the corners of the box, as in :func:`roi_align_backward_rois`.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, shape (K, C, depth, rows, columns) or
        (K, depth, rows, columns, C).
    features : ndarray
        The volumes, as in :func:`roi_align_3d`, in grad_output's dtype.

    Returns
    -------
    ndarray
        Shape (K, 6): the gradient by x1, y1, z1, x2, y2, z2 in voxels of the image; float64 for
        float64 volumes, else float32. If `rois` is a sequence, the rows of its arrays follow each
        other.

    Examples
    --------
    On a volume that rises by 1 per plane, moving the box along z by 1 adds 1:

    >>> import numpy as np, roipool
    >>> features = np.arange(5.0).reshape(1, 1, 5, 1, 1) * np.ones((5, 5))
    >>> grad_output = np.ones((1, 1, 1, 1, 1))
    >>> roipool.roi_align_3d_backward_rois(grad_output, features, [[0, 1, 1, 1, 3, 3, 3]])
    array([[0. , 0. , 0.5, 0. , 0. , 0.5]])
    """
    arrays = {
        "grad_output": grad_output,
        "features": features,
        "rois": rois,
        "batch_indices": batch_indices,
    }
    with VolumeCall(layout, (spatial_scale, sampling_ratio, aligned), **arrays) as call:
        return call.backward_boxes()
