"""detectron2's ``ROIAlign`` layer: torchvision's operator, aligned by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Array
from roipool.compat import _steps as steps
from roipool.compat import torchvision


def _rounded(rois: Any, like: Array) -> Array:
    with np.errstate(over="ignore"):
        return check.number_array("rois", rois).astype(like.dtype)


class ROIAlign(torchvision.RoIAlign):
    """``detectron2.layers.ROIAlign(output_size, spatial_scale, sampling_ratio, aligned=True)``.

    Boxes are first rounded to the maps' type, as the original does: with float16 maps, boxes
    lose up to half a pixel beyond 1024. Cells of weight 0 are not read, NaN and infinite ones
    included, as in :func:`roipool.compat.torchvision.roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import detectron2
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> detectron2.ROIAlign(2, 1.0, 0)(input, [[0, 1, 1, 3, 3]])
    array([[[[ 7.,  8.],
             [12., 13.]]]], dtype=float32)
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        spatial_scale: float,
        sampling_ratio: int,
        aligned: bool = True,
    ) -> None:
        super().__init__(output_size, spatial_scale, sampling_ratio, aligned)

    @steps.speaking_of(boxes="rois")
    @steps.arrays("input", "rois")
    def forward(self, input: Array, rois: Any) -> Array:
        """Pool `rois`, shape (K, 5), from `input`, shape (N, C, H, W)."""
        maps = check.features("input", input, "NCHW")
        return super().forward(maps, _rounded(rois, maps))

    __call__ = forward

    @steps.speaking_of(boxes="rois")
    @steps.arrays("grad_output", "rois")
    def backward(self, grad_output: Array, rois: Any, input_shape: Sequence[int]) -> Array:
        """Return the gradient with respect to `input`."""
        gradient = check.float_array("grad_output", grad_output)
        return super().backward(gradient, _rounded(rois, gradient), input_shape)
