"""ROI align: the average or maximum of bilinear samples, also as mmcv and ONNX define it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

import numpy as np

from roipool.reference._bins import define
from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Answer,
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Scale,
    Size,
    as_pair,
    as_real,
    as_scales,
)
from roipool.reference._loops import Averages, Bin, BinLoops, Maxima, Motion, Sample, Slopes
from roipool.reference._rules import (
    MMCV_ROI_ALIGN_MAX,
    ONNX_ROI_ALIGN_MAX,
    ROI_ALIGN,
    Rules,
    held_slopes,
)
from roipool.reference._sides import side_of

Loops = TypeVar("Loops", bound=BinLoops)


@dataclass(frozen=True)
class RoiAlign(BoxPooling):
    """As :func:`roipool.roi_align`, slowly: every sample by itself.

    `count_dtype` is that of a bin's length when its samples are counted: float32 in mmcv. `order`
    is that in which their positions are computed: "caffe2", "paddle", "openvino" or
    "megengine". With `skip_outside` samples outside the map do not take part in a maximum;
    otherwise they are 0. There may be groups of bins: see :func:`roipool.ps_roi_align`.
    """

    spatial_scale: Scale = 1.0
    sampling_ratio: Size = 0
    _: KW_ONLY
    aligned: bool = True
    mode: str = "avg"
    group_size: Size = 1
    count_dtype: DType | None = None
    rules: Rules = ROI_ALIGN
    order: str = "caffe2"
    skip_outside: bool = False

    def loops(self, kind: type[Loops]) -> Loops:
        """Return averages or maxima of the samples of every bin."""
        definition = define(
            self.rules.of_boxes(self.aligned),
            self.spatial_scale,
            self.sampling_ratio,
            self.coordinate_dtype,
            self.count_dtype,
            self.order,
        )
        return kind(definition, *self.place, group_size=as_pair(self.group_size))

    def forward(self, features: Array, output_size: Size, *, return_argmax: bool = False) -> Answer:
        """Return pooled values; of a maximum also the argmax, if asked for."""
        if self.mode == "avg":
            return self.loops(Averages).forward(features, output_size)
        if self.mode != "max":
            raise ValueError(f"mode must be 'avg' or 'max', got {self.mode!r}")
        maxima = self.loops(Maxima)
        found = maxima.forward(features, output_size, skip_outside=self.skip_outside)
        return (found.value, found.number) if return_argmax else found.value

    def backward(
        self, grad_output: Array, input_shape: Sequence[int], *, argmax: Array | None = None
    ) -> Floats:
        """Return the gradient of maps: the transpose, sample by sample."""
        if self.mode == "avg":
            return self.loops(Averages).backward(grad_output, input_shape)
        if self.mode != "max" or argmax is None:
            raise ValueError(f"mode must be 'avg', or 'max' with argmax, got {self.mode!r}")
        return self.loops(Maxima).backward(grad_output, argmax, input_shape)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes: a slope for every sample.

        A sample at the fraction f of a side moves by 1 - f with the side's start and by f with its
        end; only with the start where the length is held at one cell.
        """
        real = as_real(self.coordinate_dtype)

        def slopes_in(size: Pair) -> Slopes:
            return lambda sample: held_slopes(real(sample.y), real(sample.x), size, real)

        return self.loops(Averages).backward_boxes(grad_output, features, slopes_in, self.motion)

    def motion(self, bins: Pair, size: Pair) -> Motion:
        """Return how samples move with the ends of their box."""
        rules, real = self.rules.of_boxes(self.aligned), as_real(self.coordinate_dtype)

        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            (grid_h, grid_w), (x1, y1, x2, y2) = found.grid, box
            scales = as_scales(self.spatial_scale)
            held_h, held_w = (
                side_of(rules, *ends, scale, real).is_held
                for ends, scale in zip(((y1, y2), (x1, x2)), scales, strict=True)
            )
            down, across = (float(real(scale)) for scale in scales)  # of 0: no sample moves
            y_first, y_last = share_of(sample.number // grid_w, grid_h, ph, bins[0], held_h)
            x_first, x_last = share_of(sample.number % grid_w, grid_w, pw, bins[1], held_w)
            yield 0.0, x_first * across
            yield y_first * down, 0.0
            yield 0.0, x_last * across
            yield y_last * down, 0.0

        return moves


def share_of(i: int, grid: int, p: int, bins: int, is_held: bool) -> tuple[float, float]:
    """How far sample `i` of bin `p` moves as its side's start, and end, moves by one."""
    fraction = (p + (i + 0.5) / grid) / bins
    return (1.0, 0.0) if is_held else (1 - fraction, fraction)


@dataclass(frozen=True)
class PsRoiAlign(RoiAlign):
    """As :func:`roipool.ps_roi_align`, slowly: every sample by itself."""

    _: KW_ONLY
    group_size: Size = 0


# ---- Maxima in other systems; features are (N, C, H, W), rois (K, 5)


@dataclass(frozen=True)
class MmcvRoiAlignMax(RoiAlign):
    """As mmcv's maximum in :func:`roipool.compat.mmcv.roi_align`, slowly: it, argmax_y, argmax_x.

    The maximum begins at `start`: by default mmcv's on a CPU; on a GPU it is the lowest float32.
    """

    _: KW_ONLY
    count_dtype: DType | None = np.float32
    rules: Rules = MMCV_ROI_ALIGN_MAX
    start: float = -10000.0

    def forward(
        self, features: Array, output_size: Size, *, return_argmax: bool = True
    ) -> tuple[Floats, ...]:
        """Return maxima with the positions of their samples."""
        found = self.loops(Maxima).forward(features, output_size, self.start, scan_all=True)
        return found.value, found.y, found.x


@dataclass(frozen=True)
class OnnxRoiAlignMax(RoiAlign):
    """As :func:`roipool.compat.onnx.RoiAlign` with its maximum, slowly: that of weight times cell.

    Products of weight 0 take part, and a 0 for every sample outside the map.
    """

    _: KW_ONLY
    mode: str = "max"
    rules: Rules = ONNX_ROI_ALIGN_MAX
