"""torchvision's quantised ``qroi_align``, which is in `roipool.compat.torchvision`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._boxes import Form
from roipool._dtypes import BYTES
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions

QUANTISED_FORM = Form(
    size="pooled_height and pooled_width", features="input", read=conventions.numbered_boxes
)
# Steps whose multiples by the codes, and whose reciprocals, float32 holds.
LEAST_STEP, GREATEST_STEP = 1e-36, 1e36


@for_every_array
def qroi_align(
    input: ArrayT,
    rois: Any,
    input_scale: float,
    input_zero_point: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> ArrayT:
    """Average ROI align of quantised maps like ``torch.ops.torchvision.qroi_align``.

    A code ``q`` stands for the number ``input_scale * (q - input_zero_point)``, and so do the
    codes that are returned.

    Parameters
    ----------
    input : ndarray
        Codes, shape (N, C, H, W), uint8 or int8; of a quantised tensor, those of its
        ``int_repr()``.
    input_scale : float
        The step from one code to the next, from 1e-36 to 1e36; kept in float32.
    input_zero_point : int
        The code of 0.
    spatial_scale : float
        Map cells per image pixel.

    Returns
    -------
    ndarray
        Codes, shape (K, C, pooled_height, pooled_width), in the dtype of `input`.

    See Also
    --------
    roi_align : The same for maps that are not quantised.
    roipool.roi_align : Reads codes, too, and returns averages of them that are not rounded.

    Notes
    -----
    The operator of torchvision's releases, which takes quantised tensors, and its successor, which
    takes codes, compute the same. Both allow one image; here there may be several. An average
    halfway between two codes may be rounded to the other one: sums are added up in another order.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> codes = np.array([[[[10, 20], [30, 41]]]], np.uint8)
    >>> torchvision.qroi_align(codes, [[0, 0, 0, 2, 2]], 0.1, 10, 1.0, 2, 2, 1, True)
    array([[[[10, 20],
             [30, 41]]]], dtype=uint8)
    """
    with Call(QUANTISED_FORM, input=input, rois=rois) as call:
        scale = check.real_number("spatial_scale", spatial_scale)
        placed = conventions.roi_align_definition(scale, sampling_ratio, aligned)
        bins = pooled_height, pooled_width
        codes, regions, pooling = call.checked_forward(placed, bins, dtypes=BYTES)
        step, zero = _step(input_scale), _zero_point(input_zero_point, call.library.dtype(codes))
        numbers, xp = call.average([codes], regions, pooling), call.library.xp()
        # A sample outside the map counts as 0, not as code 0: it has no share in the weights.
        ones = xp.full_like(codes[:, :1], 1)
        single = np.float32
        numbers = numbers - call.average([ones], regions, pooling) * single(zero)
        # A step and back, which changes nothing but ties between codes, as in the original.
        numbers = numbers * single(step) * single(1 / step)
        dtype = call.library.dtype(codes)
        limits = np.iinfo(dtype)
        whole = xp.rint(numbers) + single(zero)
        return check.cast(xp.clip(whole, single(limits.min), single(limits.max)), dtype)


def _step(value: Any) -> float:
    number = conventions.float32_number("input_scale", value)
    if not LEAST_STEP <= number <= GREATEST_STEP:
        raise ValueError(
            f"input_scale must be from {LEAST_STEP:g} to {GREATEST_STEP:g}, got {shown(value)}"
        )
    return number


def _zero_point(value: Any, dtype: np.dtype[Any]) -> int:
    number, limits = check.whole_number("input_zero_point", value), np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise ValueError(
            f"input_zero_point must be from {limits.min} to {limits.max} for {dtype} maps, "
            f"got {shown(value)}"
        )
    return number
