"""detectron2's ``ROIAlign`` layer: torchvision's operator, aligned by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._arrays import Array
from roipool._pooling import Call, Pooling
from roipool.compat import _conventions as conventions
from roipool.compat import torchvision


def _regions(call: Call, rois: Any, images: int, dtype: np.dtype[Any]) -> Regions:
    rounded = check.cast(check.number_array("rois", rois), dtype)
    return conventions.boxes_of_images(call, rounded, images, dtype, name="rois")


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

    def forward(self, input: Array, rois: Any) -> Array:
        """Pool `rois`, shape (K, 5), from `input`, shape (N, C, H, W)."""
        with Call(input=input, rois=rois) as call:
            maps = check.features("input", input)
            regions = _regions(call, rois, maps.shape[0], maps.dtype)
            size = check.size_pair("output_size", self.output_size)
            return call.average(maps, regions, Pooling(self._definition(), size))

    __call__ = forward

    def backward(self, grad_output: Array, rois: Any, input_shape: Sequence[int]) -> Array:
        """Return the gradient with respect to `input`."""
        with Call(grad_output=grad_output, rois=rois) as call:
            gradient = check.float_array("grad_output", grad_output)
            shape = check.map_shape("input_shape", input_shape)
            regions = _regions(call, rois, shape[0], gradient.dtype)
            return conventions.average_backward(
                call, "grad_output", gradient, regions, self._definition(), shape
            )
