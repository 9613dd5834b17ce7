"""mmdetection's masks: ``FCNMaskHead._do_paste_mask`` and ``BitmapMasks.crop_and_resize``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._masks import request
from roipool._masks.crop import cropped
from roipool._masks.paste import known_boxes, pasted
from roipool._masks.request import Pasting
from roipool._pooling import Call
from roipool._types import ArrayT, Numbers

FORM = Form("bboxes", "inds", "out_shape", features="masks")

Slices = tuple[slice, slice] | tuple[()]


@for_every_array
def do_paste_mask(
    masks: ArrayT, boxes: Numbers, img_h: int, img_w: int, skip_empty: bool = True
) -> tuple[ArrayT, Slices]:
    """Paste masks like ``_do_paste_mask`` of mmdetection's ``FCNMaskHead``.

    Parameters
    ----------
    masks : ndarray
        Shape (K, 1, h, w); float16, bfloat16, float32, float64, uint8 or bool.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels.
    img_h, img_w : int
        Rows and columns of the picture.
    skip_empty : bool
        Return only the part of the picture that holds all boxes and a pixel around them.

    Returns
    -------
    (ndarray, tuple of slice)
        Shape (K, rows, columns), and where in the picture this is: two slices, or () for all.

    See Also
    --------
    roipool.paste_masks : To bool, uint8 or a piece for each mask; with gradients.

    Notes
    -----
    Boxes without area, which mmdetection divides by, paste nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmdet
    >>> masks = np.ones((1, 1, 2, 2), np.float32)
    >>> mmdet.do_paste_mask(masks, [[2, 2, 4, 4]], 5, 6)
    (array([[[0., 0., 0., 0.],
            [0., 1., 1., 0.],
            [0., 1., 1., 0.],
            [0., 0., 0., 0.]]], dtype=float32), (slice(1, 5, None), slice(1, 5, None)))
    """
    with Call(masks=masks, boxes=boxes) as call:
        cells, _ = request.masks("masks", masks)
        rows, columns = check.size_pair("img_h and img_w", (img_h, img_w))
        dtype = request.pasted_dtype(call.library, cells, None, None)
        table = request.boxes("boxes", boxes, cells.shape[0], call.library.dtype(cells))
        pasting, slices = Pasting((rows, columns)), ()
        if check.flag("skip_empty", skip_empty):
            pasting, slices = _around(known_boxes(call, table), rows, columns)
        return pasted(call, cells, (), table, pasting, dtype), slices


def _around(boxes: Any, rows: int, columns: int) -> tuple[Pasting, Any]:
    """Return the part of a picture that holds all boxes, and its slices."""
    finite = boxes[np.isfinite(boxes).all(axis=1)]
    if not len(finite):
        return Pasting((0, 0)), (slice(0, 0), slice(0, 0))
    left, top = (max(math.floor(each) - 1, 0) for each in finite.min(axis=0)[:2].tolist())
    right, bottom = (math.ceil(each) + 1 for each in finite.max(axis=0)[2:].tolist())
    left, top = min(left, columns), min(top, rows)
    right, bottom = max(min(right, columns), left), max(min(bottom, rows), top)
    pasting = Pasting((bottom - top, right - left), origin=(top, left))
    return pasting, (slice(top, bottom), slice(left, right))


@for_every_array
def crop_and_resize(
    masks: ArrayT,
    bboxes: Numbers,
    out_shape: int | Sequence[int],
    inds: Numbers,
    *,
    binarize: bool = True,
) -> ArrayT:
    """Cut targets out like ``crop_and_resize`` of mmdetection's ``BitmapMasks``.

    Parameters
    ----------
    masks : ndarray
        Shape (N, rows, columns): the masks of a ``BitmapMasks``.
    bboxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels.
    out_shape : int or (int, int)
        Rows and columns of the targets.
    inds : array_like of int
        Shape (K,): the mask of each box.
    binarize : bool
        Return whether means are at least 0.5, rather than the means.

    Returns
    -------
    ndarray
        Shape (K, rows, columns): bool, or the means, float32 for bool and uint8 masks.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmdet
    >>> masks = np.zeros((1, 8, 8), np.uint8)
    >>> masks[0, :, 4:] = 1
    >>> mmdet.crop_and_resize(masks, [[0, 0, 8, 8]], 2, [0])
    array([[[False,  True],
            [False,  True]]])
    """
    with Call(FORM, masks=masks, bboxes=bboxes, inds=inds) as call:
        threshold = 0.5 if check.flag("binarize", binarize) else None
        definition = Definition("roi_align", aligned=True)
        return cropped(call, "masks", masks, definition, out_shape, threshold)
