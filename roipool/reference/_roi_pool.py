"""ROI pooling: the maximum of whole cells, also as mmcv defines it; and their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from roipool.reference._bins import define
from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Answer,
    Array,
    DType,
    Floats,
    Scale,
    Size,
    as_pair,
    as_real,
    from_nchw,
    shape_nchw,
    to_nchw,
)
from roipool.reference._loops import LOWEST_FLOAT32, Averages, Maxima
from roipool.reference._rules import (
    MMCV_ROI_POOL,
    PS_ROI_POOL,
    ROI_AVERAGE_POOL,
    ROI_POOL,
    Rules,
)


@dataclass(frozen=True)
class RoiPool(BoxPooling):
    """As :func:`roipool.roi_pool`, slowly: every cell by itself.

    A bin that holds nothing above -inf is -inf, with no argmax. There may be groups of bins: see
    :func:`roipool.ps_roi_pool`.
    """

    spatial_scale: Scale = 1.0
    _: KW_ONLY
    group_size: Size = 1
    rules: Rules = ROI_POOL

    @property
    def maxima(self) -> Maxima:
        """The maxima of the cells of every bin."""
        options = self.spatial_scale, 0, self.coordinate_dtype
        definition = define(self.rules, *options)
        return Maxima(definition, *self.place, group_size=as_pair(self.group_size))

    def forward(self, features: Array, output_size: Size, *, return_argmax: bool = False) -> Answer:
        """Return maxima and, if asked for, the argmax."""
        found = self.maxima.forward(features, output_size)
        return (found.value, found.number) if return_argmax else found.value

    def backward(self, grad_output: Array, argmax: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: each one to the cell that was the maximum.

        That is so in a reversed box, too. (Caffe's gives such a box none.)
        """
        shape = shape_nchw(input_shape, self.layout)
        upstream, indices = to_nchw(grad_output, self.layout), to_nchw(argmax, self.layout)
        maxima, bins = self.maxima, as_pair(upstream.shape[2:])
        grad = np.zeros(shape)
        for k, (n, _) in enumerate(maxima.boxes(shape[0])):
            for c, ph, pw in np.argwhere(indices[k] >= 0).tolist():
                y, x = divmod(int(indices[k, c, ph, pw]), shape[3])
                own = range(shape[1])[maxima.channels_of(ph, pw, bins)]
                grad[n, own[c], y, x] += upstream[k, c, ph, pw]
        return from_nchw(grad, self.layout)


@dataclass(frozen=True)
class MmcvRoiPool(BoxPooling):
    """As :func:`roipool.compat.mmcv.roi_pool`, slowly: values and argmax.

    The argmax is 0 in a box of no or negative size, which mmcv skips. `rois` is (K, 5).
    """

    spatial_scale: float = 1.0

    @np.errstate(over="ignore", invalid="ignore")
    def forward(self, features: Array, output_size: Size) -> Answer:
        """Return maxima and argmax."""
        real = as_real(self.coordinate_dtype)
        scale = real(self.spatial_scale)
        options = self.spatial_scale, 0, self.coordinate_dtype
        maxima = Maxima(define(MMCV_ROI_POOL, *options), *self.place)
        found = maxima.forward(features, output_size, LOWEST_FLOAT32)

        def is_skipped(first: float, last: float) -> bool:
            return bool((real(last) + real(1)) * scale - real(first) * scale <= 0)

        for k, (_, (x1, y1, x2, y2)) in enumerate(maxima.boxes(len(np.asarray(features)))):
            if is_skipped(x1, x2) or is_skipped(y1, y2):
                found.number[k] = 0
        return found.value, found.number


@dataclass(frozen=True)
class RoiAveragePool(BoxPooling):
    """As :func:`roipool.roi_average_pool`, slowly: every cell by itself.

    The edges of bins are computed in `edge_dtype`, by default `coordinate_dtype`.
    """

    spatial_scale: Scale = 1.0
    _: KW_ONLY
    edge_dtype: DType | None = None
    group_size: Size = 1
    rules: Rules = ROI_AVERAGE_POOL

    @property
    def averages(self) -> Averages:
        """The averages of the cells of every bin."""
        options = self.spatial_scale, 0, self.coordinate_dtype, self.edge_dtype
        definition = define(self.rules, *options)
        return Averages(definition, *self.place, group_size=as_pair(self.group_size))

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return averages."""
        return self.averages.forward(features, output_size)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, cell by cell."""
        return self.averages.backward(grad_output, input_shape)


@dataclass(frozen=True)
class PsRoiPool(RoiAveragePool):
    """As :func:`roipool.ps_roi_pool`, slowly: every cell by itself."""

    _: KW_ONLY
    group_size: Size = 0
    rules: Rules = PS_ROI_POOL
