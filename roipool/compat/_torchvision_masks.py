"""torchvision's masks: pasted into pictures, and cut out as targets of a mask head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array
from roipool._boxes import Form
from roipool._dtypes import FLOATS
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._masks import request
from roipool._masks.crop import cropped
from roipool._masks.paste import pasted, pasted_backward
from roipool._masks.request import Pasting
from roipool._pooling import Call
from roipool._types import ArrayT, Numbers
from roipool.compat import _conventions as conventions

TARGETS = Form("boxes", "matched_idxs", "M", features="gt_masks")


def _expanded(boxes: Any, cells: int, frame: int) -> Array:
    """Return boxes of whole pixels that hold a mask with its frame, in the boxes' own type."""
    table = _boxes.box_table("boxes", boxes, (4,), request.BOX_SHAPE)
    if check.dtype_of(table) != check.FLOAT64:
        table = check.cast(table, check.FLOAT32)
    xp, real = conventions.library_of(table).xp(), conventions.scalar_of(table)
    growth = (cells + 2 * frame) / cells
    half, scale = real(0.5), real(growth) if type(growth) is float else growth  # or a symbol
    with np.errstate(all="ignore"):
        reach = (table[:, 2:] - table[:, :2]) * half * scale
        middle = (table[:, 2:] + table[:, :2]) * half
        first, last = xp.trunc(middle - reach), xp.trunc(middle + reach)
    return xp.concatenate([first, last + real(1)], axis=1)


def _frame(padding: Any) -> int:
    frame = check.whole_number("padding", padding)
    if not 0 <= frame <= check.MAX_SAMPLING_RATIO:
        raise ValueError(
            f"padding must be from 0 to {check.MAX_SAMPLING_RATIO}, got {shown(padding)}"
        )
    return frame


def _check_masks(name: str, shape: Sequence[int]) -> None:
    """Check that masks have the shape that torchvision's model makes, and cells."""
    if len(shape) != 4 or shape[1] != 1 or min(shape[2:]) < 1:
        raise ValueError(f"{name} must have shape (K, 1, h, w) with cells, got {tuple(shape)}")


@for_every_array
@publishes_gradient()
def paste_masks_in_image(
    masks: ArrayT, boxes: Numbers, img_shape: Sequence[int], padding: int = 1
) -> ArrayT:
    """Paste masks like ``torchvision.models.detection.roi_heads.paste_masks_in_image``.

    Parameters
    ----------
    masks : ndarray
        Shape (K, 1, h, w): float16, bfloat16, float32 or float64.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels.
    img_shape : (int, int)
        Rows and columns of the picture.
    padding : int
        Cells of zeros around a mask; the box grows with them.

    Returns
    -------
    ndarray
        Shape (K, 1, rows, columns), in the masks' dtype.

    See Also
    --------
    roipool.paste_masks : To bool, uint8 or pieces; the rule of detectron2 and mmdetection.
    roipool.masks_to_rle : To run lengths.

    Notes
    -----
    A mask is framed by zeros, its box grown about its middle by as much and cut to whole pixels,
    and the framed mask resized to the box. A box beside the picture, for which torchvision raises
    an error, and one that is not finite, paste nothing. Differences of neighbouring cells must be
    finite.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> masks = np.ones((1, 1, 2, 2), np.float32)
    >>> torchvision.paste_masks_in_image(masks, [[1, 1, 3, 3]], (4, 5)).round(2)
    array([[[[0.  , 0.  , 0.  , 0.  , 0.  ],
             [0.  , 0.49, 0.7 , 0.49, 0.  ],
             [0.  , 0.7 , 1.  , 0.7 , 0.  ],
             [0.  , 0.49, 0.7 , 0.49, 0.  ]]]], dtype=float32)
    """
    with Call(masks=masks, boxes=boxes) as call:
        cells, axes = request.masks("masks", masks, FLOATS)
        _check_masks("masks", (cells.shape[0], *axes, *cells.shape[1:]))
        frame = _frame(padding)
        size = check.size_pair("img_shape", img_shape)
        dtype = call.library.dtype(cells)
        whole = _expanded(boxes, cells.shape[-1], frame)
        table = request.boxes("boxes", whole, cells.shape[0], dtype)
        return pasted(call, cells, axes, table, Pasting(size, "resized", frame), dtype)


@for_every_array
def paste_masks_in_image_backward(
    grad_output: ArrayT, boxes: Numbers, masks_shape: Sequence[int], padding: int = 1
) -> ArrayT:
    """Return the gradient of :func:`paste_masks_in_image` with respect to the masks.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, 1, rows, columns).
    masks_shape : sequence of int
        (K, 1, h, w).

    Returns
    -------
    ndarray
        Shape `masks_shape`, in grad_output's dtype.
    """
    with Call(grad_output=grad_output, boxes=boxes) as call:
        shape = check.whole_sizes("masks_shape", masks_shape)
        _check_masks("masks_shape", shape)
        frame = _frame(padding)
        whole = _expanded(boxes, shape[-1], frame)
        return pasted_backward(call, grad_output, whole, shape, Pasting((0, 0), "resized", frame))


@for_every_array
def project_masks_on_boxes(
    gt_masks: ArrayT,
    boxes: Numbers,
    matched_idxs: Numbers,
    M: int,  # noqa: N803
) -> ArrayT:
    """Cut targets out like ``torchvision.models.detection.roi_heads.project_masks_on_boxes``.

    Parameters
    ----------
    gt_masks : ndarray
        Shape (N, rows, columns); bool, uint8, or float16, bfloat16, float32 or float64. Bytes are
        read where they lie; the original converts them all.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels.
    matched_idxs : array_like of int
        Shape (K,): the mask of each box.
    M : int
        Rows and columns of the targets.

    Returns
    -------
    ndarray
        Shape (K, M, M), in the masks' dtype, or float32 for bool and uint8. The original's is in
        the boxes' dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> gt_masks = np.zeros((1, 8, 8), np.uint8)
    >>> gt_masks[0, :, 4:] = 1
    >>> torchvision.project_masks_on_boxes(gt_masks, [[0, 0, 8, 8]], [0], 2)
    array([[[0.125, 1.   ],
            [0.125, 1.   ]]], dtype=float32)
    """
    with Call(TARGETS, gt_masks=gt_masks, boxes=boxes, matched_idxs=matched_idxs) as call:
        definition = conventions.roi_align_definition(1.0, -1)
        return cropped(call, "gt_masks", gt_masks, definition, check.whole_number("M", M), None)
