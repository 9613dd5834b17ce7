"""What ONNX defines in its own way: the maximum in ROI align.

Features are ``(N, C, H, W)`` and `rois` is ``(K, 5)``.
"""

from __future__ import annotations

import numpy as np

from roipool.reference._inputs import Array, Box, DType, Floats, Size, _boxes, _pair, _to_nchw
from roipool.reference._loops import Bin, _maximum
from roipool.reference._roi_align import PUBLISHED, AlignRules, _align


def onnx_roi_align_max(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: AlignRules = PUBLISHED,
) -> Floats:
    """Maximum of the single products weight * pixel in every bin, as ONNX defines it.

    The samples are those of `roi_align`; products of weight 0 take part, and a 0 for every sample
    outside the map. Source: ONNX's RoiAlign with mode "max", as onnxruntime computes it.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, coordinate_dtype
        See `roipool.reference`; features (N, C, H, W) and rois (K, 5) only.
    sampling_ratio, aligned, rules
        As for `roi_align`.

    Returns
    -------
    output : float64
        The maxima; 0 for a bin without samples.

    Raises
    ------
    ValueError
        If `rois` is not ``(K, 5)``, or names an image that does not exist.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> onnx_roi_align_max(features, [[0, 1, 1, 3, 3]], 2, sampling_ratio=2).tolist()
    [[[[3.9375, 4.5], [6.75, 7.3125]]]]
    """
    planes, bins = _to_nchw(features, "NCHW"), _pair(output_size)
    options = spatial_scale, sampling_ratio, aligned
    definition = _align(bins, planes.shape[2:], *options, coordinate_dtype, rules=rules)

    def one_product_each(box: Box, ph: int, pw: int) -> Bin:
        found = definition(box, ph, pw)
        parts = [
            (sample, part)
            for sample in found.samples
            for part in [[p] for p in sample.pixels] or [[]]
        ]
        return Bin([sample._replace(pixels=part) for sample, part in parts], found.grid)

    return _maximum(planes, _boxes(rois, None, len(planes)), bins, one_product_each).value
