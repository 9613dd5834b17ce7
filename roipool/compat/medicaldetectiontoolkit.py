"""ROI align of volumes as in medicaldetectiontoolkit, branch torch1x (cuda_functions/roi_align).

nnDetection's early releases have the same kernel. Their volumes have rows, columns and slices, in
this order, and boxes y1, x1, y2, x2, z1, z2: y along the first of these axes, x along the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from roipool import _boxes
from roipool._boxes import Form, Regions
from roipool._front_ends import for_every_array
from roipool._types import ArrayT
from roipool._volumes import VolumeCall
from roipool.compat import _conventions as conventions
from roipool.compat import _volumes
from roipool.compat._volumes import options_of

# The columns of boxes y1, x1, y2, x2, z1, z2 in the order of the core, which calls these axes of
# a volume depth, rows and columns.
_ORDER = [4, 1, 0, 5, 3, 2]


def _regions(boxes: Any, _: None, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    """Return boxes from one table with batch indices, or from a table per image."""
    if isinstance(boxes, (list, tuple)) and any(_boxes.rank(item) == 2 for item in boxes):
        _boxes.one_per_image(form, boxes, None, images)
        regions = _boxes.joined_regions(_boxes.tables(form.boxes, boxes, 6), 6, dtype)
    else:
        regions = conventions.numbered_boxes(boxes, None, images, dtype, form)
    xp = conventions.library_of(regions.boxes).xp()
    ordered = xp.stack([regions.boxes[:, column] for column in _ORDER], axis=1)
    return regions._replace(boxes=ordered)


FORM = Form(
    boxes="boxes",
    features="input",
    columns=("y1", "x1", "y2", "x2", "z1", "z2"),
    read=_regions,
)


@for_every_array
def roi_align_3d(
    input: ArrayT,
    boxes: Any,
    output_size: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> ArrayT:
    """ROI align of volumes as ``roi_align_3d`` of medicaldetectiontoolkit.

    Parameters
    ----------
    input : ndarray
        Volumes, shape (N, C, H, W, D).
    boxes : array_like
        Shape (K, 7): batch index (cut to a whole number), y1, x1, y2, x2, z1, z2 in voxels; or a
        list of N arrays of shape (L, 6), one per image.
    output_size : (int, int, int)
        Bins: rows, columns and slices, along H, W and D.
    spatial_scale : float
        Cells per voxel, along all axes.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns, slices).

    See Also
    --------
    roipool.roi_align_3d : The operation, with the gradient of boxes.

    Notes
    -----
    The original is for GPUs only. Its documentation gives boxes as x1, y1, x2, y2, but its kernel
    reads y first. It reads undefined memory for NaN boxes, which pool 0 here, and computes float16
    in float16, here in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import medicaldetectiontoolkit
    >>> input = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
    >>> boxes = [[0, 0, 1, 2, 3, 1, 3]]
    >>> medicaldetectiontoolkit.roi_align_3d(input, boxes, (1, 2, 2), sampling_ratio=1)
    array([[[[[23.5, 24.5],
              [27.5, 28.5]]]]], dtype=float32)
    """
    options = options_of(spatial_scale, sampling_ratio)
    with VolumeCall("NCDHW", options, FORM, input=input, boxes=boxes) as call:
        return call.forward(output_size)


@for_every_array
def roi_align_3d_backward(
    grad_output: ArrayT,
    boxes: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> ArrayT:
    """Return the gradient of :func:`roi_align_3d` with respect to `input`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns, slices).
    input_shape : sequence of int
        (N, C, H, W, D).

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import medicaldetectiontoolkit
    >>> grad_output = np.ones((1, 1, 1, 1, 1), np.float32)
    >>> boxes, input_shape = [[0, 0, 0, 1, 1, 0, 1]], (1, 1, 1, 1, 3)
    >>> medicaldetectiontoolkit.roi_align_3d_backward(grad_output, boxes, input_shape)
    array([[[[[0.5, 0.5, 0. ]]]]], dtype=float32)
    """
    options = options_of(spatial_scale, sampling_ratio)
    with VolumeCall("NCDHW", options, FORM, grad_output=grad_output, boxes=boxes) as call:
        return call.backward(input_shape)


class RoIAlign(_volumes.RoIAlign3d):
    """:func:`roi_align_3d` as a layer, as ``RoIAlign`` of medicaldetectiontoolkit.

    Of two numbers of bins the original is ROI align of maps, which is not offered.

    Parameters
    ----------
    output_size, spatial_scale, sampling_ratio
        As in :func:`roi_align_3d`.

    Examples
    --------
    >>> from roipool.compat import medicaldetectiontoolkit
    >>> medicaldetectiontoolkit.RoIAlign((7, 7, 3))
    RoIAlign(output_size=(7, 7, 3), spatial_scale=1.0, sampling_ratio=-1)
    """

    def forward(self, input: ArrayT, boxes: Any) -> ArrayT:
        """Pool volumes, as :func:`roi_align_3d`."""
        options = self.output_size, self.spatial_scale, self.sampling_ratio
        return roi_align_3d(input, boxes, *options)

    if TYPE_CHECKING:
        __call__ = forward
