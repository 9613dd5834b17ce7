"""Masks of pictures, cut out for boxes: the targets of mask heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._dtypes import FLOATS_AND_BYTES
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import ArrayT, Numbers

FORM = Form("boxes", "indices", "size", features="masks")


@for_every_array
def crop_masks(
    masks: ArrayT,
    boxes: Numbers,
    indices: Numbers,
    size: int | Sequence[int],
    *,
    threshold: float | None = None,
) -> ArrayT:
    """Cut masks of pictures out for boxes, and resize them: the targets of a mask head.

    Parameters
    ----------
    masks : ndarray
        Shape (N, rows, columns); bool, uint8, or float16, bfloat16, float32 or float64. Bytes are
        read where they lie.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels.
    indices : array_like of int
        Shape (K,): the mask of each box.
    size : int or (int, int)
        Rows and columns of the targets.
    threshold : float, optional
        Return bool: whether a value is at least this.

    Returns
    -------
    ndarray
        Shape (K, rows, columns); the mean of the mask over each cell, in the masks' dtype, or
        float32 for bool and uint8; or bool.

    See Also
    --------
    paste_masks : The opposite.
    roi_align : The means, of several channels.
    roipool.compat.torchvision.project_masks_on_boxes : With torchvision's name and numbers.

    Notes
    -----
    Means are those of :func:`roi_align` with its defaults. With ``threshold=0.5`` these are the
    targets of detectron2's ``BitMasks.crop_and_resize`` and mmdetection's
    ``BitmapMasks.crop_and_resize``.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> masks = np.zeros((1, 8, 8), bool)
    >>> masks[0, :, 4:] = True
    >>> roipool.crop_masks(masks, [[0, 0, 8, 8]], [0], 2)
    array([[[0., 1.],
            [0., 1.]]], dtype=float32)
    """
    with Call(FORM, masks=masks, boxes=boxes, indices=indices) as call:
        limit = None if threshold is None else check.real_number("threshold", threshold)
        return cropped(call, "masks", masks, Definition("roi_align", aligned=True), size, limit)


def cropped(
    call: Call,
    name: str,
    masks: Any,
    definition: Definition,
    size: Any,
    threshold: float | None,
) -> Any:
    """Return the means of masks in the cells of boxes, or whether they reach a threshold."""
    checked = check.float_array(name, masks, FLOATS_AND_BYTES, 3)[:, None]
    maps = check.float_array(name, checked, FLOATS_AND_BYTES, layout="NCHW")
    regions = call.regions(maps.shape[0], call.library.dtype(maps))
    pooling = Pooling(definition, check.size_pair(call.size_name, size))
    means = call.average([maps], regions, pooling)[:, 0]
    if threshold is None:
        return means
    with np.errstate(over="ignore"):  # of a threshold beyond the means' type
        return means >= threshold
