"""The first ROI align layers, Caffe's and the older MXNet's: samples one cell apart.

Features are ``(N, C, H, W)`` and `rois` is ``(K, 5)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roipool.reference._bins import define
from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import Answer, Array, Size
from roipool.reference._loops import LOWEST_FLOAT32, Found, Maxima
from roipool.reference._rules import CAFFE_ROI_ALIGN, MXNET_ROI_ALIGN, Rules


@dataclass(frozen=True)
class _StepAlign(BoxPooling):
    """Maxima of samples one cell apart."""

    spatial_scale: float = 1.0

    def found(self, rules: Rules, rois: Array, features: Array, output_size: Size) -> Found:
        """Return the maxima of some boxes."""
        options = self.spatial_scale, 0, self.coordinate_dtype
        return Maxima(define(rules, *options), rois).forward(features, output_size, LOWEST_FLOAT32)


@dataclass(frozen=True)
class CaffeRoiAlign(_StepAlign):
    """As :func:`roipool.compat.caffe.roi_align`, slowly: values, argmax_x, argmax_y.

    A sample on a cell's centre counts it twice on that axis. Source: roi_align_layer.cu.
    """

    def forward(self, features: Array, output_size: Size) -> Answer:
        """Return maxima with the cells of their samples."""
        found = self.found(CAFFE_ROI_ALIGN, np.asarray(self.rois), features, output_size)
        return found.value, found.x.astype(np.int64), found.y.astype(np.int64)


@dataclass(frozen=True)
class MxnetRoiAlign(_StepAlign):
    """As :func:`roipool.compat.mxnet.ROIAlign`, slowly: values, argmax_x, argmax_y.

    A negative batch index makes all three 0. Source: roi_align.cu in the R-CNN example of
    ElaineBao/mxnet.
    """

    def forward(self, features: Array, output_size: Size) -> Answer:
        """Return maxima with the positions of their samples."""
        table = np.asarray(self.rois)
        known = table[:, 0] >= 0
        found = self.found(MXNET_ROI_ALIGN, table[known], features, output_size)
        output, argmax_x, argmax_y = np.zeros((3, len(table), *found.value.shape[1:]))
        output[known], argmax_x[known], argmax_y[known] = found.value, found.x, found.y
        return output, argmax_x, argmax_y
