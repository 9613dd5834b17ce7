"""ROI align of volumes as in MedVision (medvision/ops/roi_align), and in its copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roipool import _arguments as check
from roipool._boxes import VOLUMES
from roipool._front_ends import for_every_array
from roipool._types import ArrayT
from roipool._volumes import VolumeCall
from roipool.compat import _conventions as conventions
from roipool.compat import _volumes
from roipool.compat._volumes import options_of

FORM = VOLUMES._replace(read=conventions.numbered_boxes)


@for_every_array
def roi_align_3d(
    features: ArrayT,
    rois: Any,
    output_size: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: int = 0,
    order: int = 1,
) -> ArrayT:
    """ROI align of volumes as ``medvision.ops.roi_align_3d``.

    Parameters
    ----------
    features : ndarray
        Volumes, shape (N, C, D, H, W).
    rois : array_like
        Shape (K, 7): batch index (cut to a whole number), x1, y1, z1, x2, y2, z2 in voxels.
    output_size : int or (int, int, int)
        Bins: depth, rows and columns.
    spatial_scale : float
        Cells per voxel, along all axes.
    order : {1}
        Trilinear samples. 0, the nearest cells, is not offered.

    Returns
    -------
    ndarray
        Shape (K, C, depth, rows, columns).

    See Also
    --------
    roipool.roi_align_3d : The operation, with the gradient of boxes.

    Notes
    -----
    MedVision has this operator for GPUs only. It reads undefined memory for NaN boxes, which pool 0
    here, and computes float16 in float16, here in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import medvision
    >>> features = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
    >>> medvision.roi_align_3d(features, [[0, 1, 1, 0, 3, 3, 2]], (1, 2, 2), 1.0, 1)
    array([[[[[23.5, 24.5],
              [27.5, 28.5]]]]], dtype=float32)
    """
    _check_order(order)
    options = options_of(spatial_scale, sampling_ratio)
    with VolumeCall("NCDHW", options, FORM, features=features, rois=rois) as call:
        return call.forward(output_size)


@for_every_array
def roi_align_3d_backward(
    grad_output: ArrayT,
    rois: Any,
    input_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int = 0,
    order: int = 1,
) -> ArrayT:
    """Return the gradient of :func:`roi_align_3d` with respect to `features`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, depth, rows, columns).
    input_shape : sequence of int
        (N, C, D, H, W).

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import medvision
    >>> grad_output = np.ones((1, 1, 1, 1, 1), np.float32)
    >>> rois, input_shape = [[0, 0, 0, 0, 1, 1, 1]], (1, 1, 1, 1, 3)
    >>> medvision.roi_align_3d_backward(grad_output, rois, input_shape, 1.0)
    array([[[[[0.5, 0.5, 0. ]]]]], dtype=float32)
    """
    _check_order(order)
    options = options_of(spatial_scale, sampling_ratio)
    with VolumeCall("NCDHW", options, FORM, grad_output=grad_output, rois=rois) as call:
        return call.backward(input_shape)


def _check_order(order: Any) -> None:
    if check.whole_number("order", order) != 1:
        raise ValueError(f"order must be 1, trilinear; 0, nearest, is not offered: got {order}")


class RoIAlign(_volumes.RoIAlign3d):
    """:func:`roi_align_3d` as a layer, as ``medvision.ops.RoIAlign``.

    Parameters
    ----------
    output_size, spatial_scale, sampling_ratio
        As in :func:`roi_align_3d`; adaptive by default.

    Examples
    --------
    >>> from roipool.compat import medvision
    >>> medvision.RoIAlign((2, 7, 7), 0.25)
    RoIAlign(output_size=(2, 7, 7), spatial_scale=0.25, sampling_ratio=-1)
    """

    def forward(self, features: ArrayT, rois: Any, order: int = 1) -> ArrayT:
        """Pool volumes, as :func:`roi_align_3d`."""
        options = self.output_size, self.spatial_scale, self.sampling_ratio
        return roi_align_3d(features, rois, *options, order)

    if TYPE_CHECKING:
        __call__ = forward
