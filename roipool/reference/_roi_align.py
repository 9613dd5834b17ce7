"""ROI align: the average or maximum of bilinear samples, also as mmcv and ONNX define it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from roipool.reference._bins import define
from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Integers,
    Pair,
    Rois,
    Size,
    as_pair,
    as_real,
)
from roipool.reference._loops import Averages, Bin, Maxima, Motion, Sample, Slopes
from roipool.reference._rules import (
    MMCV_ROI_ALIGN_MAX,
    ONNX_ROI_ALIGN_MAX,
    ROI_ALIGN,
    Rules,
    held_slopes,
)
from roipool.reference._sides import side_of


def roi_align(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    mode: str = "avg",
    group_size: Size = 1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    return_argmax: bool = False,
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
    rules: Rules = ROI_ALIGN,
    order: str = "caffe2",
    skip_outside: bool = False,
) -> Floats | tuple[Floats, Integers]:
    """As :func:`roipool.roi_align`, slowly: every sample by itself.

    `count_dtype` is that of a bin's length when its samples are counted: float32 in mmcv. `order`
    is that in which their positions are computed: "caffe2", "paddle", "openvino" or
    "megengine". With `skip_outside` samples outside the map do not take part in a maximum;
    otherwise they are 0. There may be groups of bins: see :func:`roipool.ps_roi_align`.
    """
    options = spatial_scale, sampling_ratio, coordinate_dtype, count_dtype, order
    boxes = define(rules.of_boxes(aligned), *options), rois, batch_indices, layout
    groups = as_pair(group_size)
    if mode == "avg":
        return Averages(*boxes, group_size=groups).forward(features, output_size)
    if mode != "max":
        raise ValueError(f"mode must be 'avg' or 'max', got {mode!r}")
    maxima = Maxima(*boxes, group_size=groups)
    found = maxima.forward(features, output_size, skip_outside=skip_outside)
    return (found.value, found.number) if return_argmax else found.value


def roi_align_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    mode: str = "avg",
    argmax: Array | None = None,
    group_size: Size = 1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
    rules: Rules = ROI_ALIGN,
    order: str = "caffe2",
) -> Floats:
    """As :func:`roipool.roi_align_backward`, slowly: the transpose, sample by sample.

    `count_dtype`, `order` and `group_size` are as for `roi_align`.
    """
    options = spatial_scale, sampling_ratio, coordinate_dtype, count_dtype, order
    boxes = define(rules.of_boxes(aligned), *options), rois, batch_indices, layout
    groups = as_pair(group_size)
    if mode == "avg":
        return Averages(*boxes, group_size=groups).backward(grad_output, input_shape)
    if mode != "max" or argmax is None:
        raise ValueError(f"mode must be 'avg', or 'max' with argmax, got {mode!r}")
    return Maxima(*boxes, group_size=groups).backward(grad_output, argmax, input_shape)


def roi_align_backward_rois(
    grad_output: Array,
    features: Array,
    rois: Rois,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    group_size: Size = 1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: Rules = ROI_ALIGN,
) -> Floats:
    """As :func:`roipool.roi_align_backward_rois`, slowly: a slope for every sample.

    A sample at the fraction f of a side moves by 1 - f with the side's start and by f with its
    end; only with the start where the length is held at one cell.
    """
    rules, real = rules.of_boxes(aligned), as_real(coordinate_dtype)

    def slopes_in(size: Pair) -> Slopes:
        return lambda sample: held_slopes(real(sample.y), real(sample.x), size, real)

    def motion(bins: Pair, size: Pair) -> Motion:
        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            scale = float(real(spatial_scale))  # of 0: no sample moves, whatever it reads
            (grid_h, grid_w), (x1, y1, x2, y2) = found.grid, box
            held_h, held_w = (
                side_of(rules, *ends, spatial_scale, real).is_held for ends in ((y1, y2), (x1, x2))
            )
            y_first, y_last = _share(sample.number // grid_w, grid_h, ph, bins[0], held_h)
            x_first, x_last = _share(sample.number % grid_w, grid_w, pw, bins[1], held_w)
            yield 0.0, x_first * scale
            yield y_first * scale, 0.0
            yield 0.0, x_last * scale
            yield y_last * scale, 0.0

        return moves

    definition = define(rules, spatial_scale, sampling_ratio, coordinate_dtype)
    averages = Averages(definition, rois, batch_indices, layout, group_size=as_pair(group_size))
    return averages.backward_boxes(grad_output, features, slopes_in, motion)


def _share(i: int, grid: int, p: int, bins: int, is_held: bool) -> tuple[float, float]:
    """How far sample `i` of bin `p` moves as its side's start, and end, moves by one."""
    fraction = (p + (i + 0.5) / grid) / bins
    return (1.0, 0.0) if is_held else (1 - fraction, fraction)


# ---- Of channels that belong to the bin


def ps_roi_align(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    group_size: Size = 0,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: Rules = ROI_ALIGN,
) -> Floats:
    """As :func:`roipool.ps_roi_align`, slowly: every sample by itself."""
    found = roi_align(
        features,
        rois,
        output_size,
        spatial_scale,
        sampling_ratio,
        aligned=aligned,
        group_size=group_size,
        batch_indices=batch_indices,
        layout=layout,
        coordinate_dtype=coordinate_dtype,
        rules=rules,
    )
    assert not isinstance(found, tuple)
    return found


def ps_roi_align_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    group_size: Size = 0,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: Rules = ROI_ALIGN,
) -> Floats:
    """As :func:`roipool.ps_roi_align_backward`, slowly: the transpose, sample by sample."""
    return roi_align_backward(
        grad_output,
        rois,
        input_shape,
        spatial_scale,
        sampling_ratio,
        aligned=aligned,
        group_size=group_size,
        batch_indices=batch_indices,
        layout=layout,
        coordinate_dtype=coordinate_dtype,
        rules=rules,
    )


def ps_roi_align_backward_rois(
    grad_output: Array,
    features: Array,
    rois: Rois,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    group_size: Size = 0,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: Rules = ROI_ALIGN,
) -> Floats:
    """As :func:`roipool.ps_roi_align_backward_rois`, slowly: a slope for every sample."""
    return roi_align_backward_rois(
        grad_output,
        features,
        rois,
        spatial_scale,
        sampling_ratio,
        aligned=aligned,
        group_size=group_size,
        batch_indices=batch_indices,
        layout=layout,
        coordinate_dtype=coordinate_dtype,
        rules=rules,
    )


# ---- Maxima in other systems; features are (N, C, H, W), rois (K, 5)


def mmcv_roi_align_max(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    start: float = -10000.0,
    coordinate_dtype: DType = np.float64,
    rules: Rules = MMCV_ROI_ALIGN_MAX,
) -> tuple[Floats, Floats, Floats]:
    """As mmcv's maximum in :func:`roipool.compat.mmcv.roi_align`, slowly: it, argmax_y, argmax_x.

    The maximum begins at `start`: by default mmcv's on a CPU; on a GPU it is the lowest float32.
    """
    options = spatial_scale, sampling_ratio, coordinate_dtype, np.float32
    maxima = Maxima(define(rules.of_boxes(aligned), *options), rois)
    found = maxima.forward(features, output_size, start, scan_all=True)
    return found.value, found.y, found.x


def onnx_roi_align_max(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: Rules = ONNX_ROI_ALIGN_MAX,
) -> Floats:
    """As :func:`roipool.compat.onnx.RoiAlign` with its maximum, slowly: that of weight times cell.

    Products of weight 0 take part, and a 0 for every sample outside the map.
    """
    options = spatial_scale, sampling_ratio, coordinate_dtype
    return (
        Maxima(define(rules.of_boxes(aligned), *options), rois).forward(features, output_size).value
    )
