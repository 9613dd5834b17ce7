"""``unmold_mask`` of Matterport's Mask R-CNN."""

from __future__ import annotations

from collections.abc import Sequence

from roipool import _arguments as check
from roipool import _boxes
from roipool._front_ends import for_every_array
from roipool._masks import request
from roipool._masks.paste import pasted
from roipool._masks.request import Pasting
from roipool._pooling import Call
from roipool._types import ArrayT, Numbers


@for_every_array
def unmold_mask(mask: ArrayT, bbox: Numbers, image_shape: Sequence[int]) -> ArrayT:
    """Paste a mask like ``mrcnn.utils.unmold_mask``.

    Parameters
    ----------
    mask : ndarray
        Shape (h, w), of numbers from 0 to 1; float16, bfloat16, float32, float64, uint8 or bool.
    bbox : array_like of int
        y1, x1, y2, x2 in pixels; row y2 and column x2 do not belong to the box.
    image_shape : sequence of int
        Rows and columns of the picture, and its channels, which have no effect.

    Returns
    -------
    ndarray of bool
        Shape (rows, columns): whether the resized mask is at least 0.5.

    See Also
    --------
    roipool.paste_masks : Many masks at once.

    Notes
    -----
    The original resizes with scikit-image, in float64, and clips the result to the range of the
    mask: if no number of the mask is below 0.5, the whole box is set. Here, float32 masks are
    computed in float32, so a pixel at the threshold may differ; and a box that extends beyond the
    picture, for which the original raises an error, is cut.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import matterport
    >>> matterport.unmold_mask(np.ones((2, 2)), [1, 1, 3, 4], (4, 5, 3)).astype(int)
    array([[0, 0, 0, 0, 0],
           [0, 1, 1, 1, 0],
           [0, 1, 1, 1, 0],
           [0, 0, 0, 0, 0]])
    """
    with Call(mask=mask, bbox=bbox) as call:
        cells = check.float_array("mask", mask, request.MASK_DTYPES, 2)[None]
        sizes = check.whole_sizes("image_shape", image_shape)
        size = check.size_pair("image_shape", sizes[:2])
        box = check.number_array("bbox", bbox)
        if tuple(box.shape) != (4,):
            raise ValueError(f"bbox must have shape (4,): y1, x1, y2, x2; got {tuple(box.shape)}")
        table = _boxes.coordinates(_boxes.swap_xy(box[None]), call.library.dtype(cells))
        dtype = request.pasted_dtype(call.library, cells, None, None)
        values = pasted(call, cells, (), table, Pasting(size, "cut"), dtype)[0]
        if 0 in cells.shape:
            return values > 0
        # Pixels that fade towards 0 at the edge: scikit-image clips them to the mask's minimum.
        is_set: ArrayT = (values >= 0.5) | ((values > 0) & (cells.min() >= 0.5))
        return is_set
