"""OpenVINO's operations for regions of interest, as its CPU plugin computes them.

OpenVINO defines no gradients; the gradients here are the derivatives of the forward. OpenVINO does
not check boxes: an image that does not exist is read out of bounds, and boxes with NaN or infinite
coordinates crash or give NaN. Here the image must exist, and such a box is pooled to 0, or to NaN
if an average has no samples.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._boxes import ROTATED, Form, Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._request import MaxRules, Pooling, check_sizes
from roipool._types import ArrayT, Mode
from roipool.compat import _conventions as conventions
from roipool.compat import _openvino_deformable, _openvino_pooling, _rotated
from roipool.compat._openvino_deformable import (
    DeformablePSROIPooling,
    DeformablePSROIPooling_backward,
)
from roipool.compat._openvino_pooling import (
    PSROIPooling,
    PSROIPooling_backward,
    ROIPooling,
    ROIPooling_backward,
)

__all__ = [
    "DeformablePSROIPooling",
    "DeformablePSROIPooling_backward",
    "ExperimentalDetectronROIFeatureExtractor",
    "ExperimentalDetectronROIFeatureExtractor_backward",
    "PSROIPooling",
    "PSROIPooling_backward",
    "ROIAlign",
    "ROIAlignRotated",
    "ROIAlignRotated_backward",
    "ROIAlign_backward",
    "ROIPooling",
    "ROIPooling_backward",
]

AlignedMode: TypeAlias = Literal["asymmetric", "half_pixel_for_nn", "half_pixel"]
_ALIGNED_MODES: tuple[AlignedMode, ...] = get_args(AlignedMode)
_MODES: tuple[Mode, ...] = get_args(Mode)
_FROM_ZERO = MaxRules(lowest=0.0)


def _read_boxes(
    rois: Any, batch_indices: Any, images: int, dtype: np.dtype[Any], form: Form
) -> Regions:
    return _boxes.regions(check.number_array(form.boxes, rois), batch_indices, images, dtype, form)


ALIGN_FORM = Form(size="pooled_h and pooled_w", features="data", read=_read_boxes)
ROTATED_FORM = ALIGN_FORM._replace(columns=ROTATED.columns)
POOL_FORM, PS_FORM = _openvino_pooling.POOL_FORM, _openvino_pooling.PS_FORM
DEFORMABLE_FORM = _openvino_deformable.FORM


def _align(mode: str, sampling_ratio: int, spatial_scale: float, aligned_mode: str) -> Definition:
    check.choice("mode", mode, _MODES)
    return Definition(
        "openvino_roi_align",
        conventions.float32_number("spatial_scale", spatial_scale),
        check.sampling_pair("sampling_ratio", sampling_ratio),
        check.choice("aligned_mode", aligned_mode, _ALIGNED_MODES) != "asymmetric",
    )


def _shifted(regions: Regions, aligned_mode: str) -> Regions:
    """Return boxes shifted by half a pixel before they are scaled, in mode "half_pixel"."""
    if aligned_mode != "half_pixel":
        return regions
    boxes = regions.boxes
    return regions._replace(boxes=boxes + conventions.scalar_of(boxes)(0.5))


@for_every_array
def ROIAlign(  # noqa: N802 - OpenVINO's name
    data: ArrayT,
    rois: Any,
    batch_indices: Any,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    spatial_scale: float,
    mode: Mode,
    aligned_mode: AlignedMode = "asymmetric",
) -> ArrayT:
    """ROI align as the OpenVINO operation of opsets 3 and 9.

    Parameters
    ----------
    rois : array_like
        Shape (K, 4): x1, y1, x2, y2 in image pixels.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive.
    mode : {"avg", "max"}
        "max" is the largest interpolated sample, or 0 if all are negative.
    aligned_mode : {"asymmetric", "half_pixel_for_nn", "half_pixel"}
        "half_pixel_for_nn" shifts boxes by half a cell after scaling; "half_pixel" also shifts them
        by half a pixel the other way before scaling. Boxes may then be shorter than a cell. Opset 3
        has no such attribute and computes "asymmetric".

    Returns
    -------
    ndarray
        Shape (K, C, pooled_h, pooled_w). If the adaptive grid of a box has no samples, its average
        is NaN, and its maximum 0.

    Notes
    -----
    A maximum ignores NaN; in OpenVINO a NaN replaces it, and the next sample replaces the NaN. A
    cell whose weight in a sample is exactly 0 is not read; OpenVINO multiplies it by 0.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import openvino
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> openvino.ROIAlign(data, [[1, 1, 3, 3]], [0], 2, 2, 2, 1.0, "max")
    array([[[[11.5, 12.5],
             [16.5, 17.5]]]], dtype=float32)
    """
    with Call(ALIGN_FORM, data=data, rois=rois, batch_indices=batch_indices) as call:
        placed = _align(mode, sampling_ratio, spatial_scale, aligned_mode)
        size = pooled_h, pooled_w
        maps, regions, pooling = call.checked_forward(placed, size, rules=_FROM_ZERO)
        regions = _shifted(regions, aligned_mode)
        if mode == "max":
            return call.maximum(maps, regions, pooling, return_argmax=False)[0]
        pooled = call.average([maps], regions, pooling)
        return conventions.nan_without_samples(pooled, regions, pooling)


@for_every_array
def ROIAlign_backward(  # noqa: N802
    grad_output: ArrayT,
    data: ArrayT,
    rois: Any,
    batch_indices: Any,
    sampling_ratio: int,
    spatial_scale: float,
    mode: Mode,
    aligned_mode: AlignedMode = "asymmetric",
) -> ArrayT:
    """Return the gradient of :func:`ROIAlign` with respect to `data`.

    A maximum that is 0 because all samples are negative or 0 has no gradient.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, pooled_h, pooled_w), in the dtype of `data`.

    Returns
    -------
    ndarray
        The shape of `data`.
    """
    with Call(
        ALIGN_FORM, grad_output=grad_output, data=data, rois=rois, batch_indices=batch_indices
    ) as call:
        placed = _align(mode, sampling_ratio, spatial_scale, aligned_mode)
        checked = call.checked_backward_boxes(placed, rules=_FROM_ZERO)
        gradient, (maps,), regions, pooling = checked
        regions = _shifted(regions, aligned_mode)
        if mode == "avg":
            return call.average_backward(gradient, regions, pooling, maps.shape)
        _, argmax = call.maximum(maps, regions, pooling)
        return call.maximum_backward(gradient, argmax, regions, pooling, maps.shape)


@for_every_array
def ROIAlignRotated(  # noqa: N802 - OpenVINO's name
    data: ArrayT,
    rois: Any,
    batch_indices: Any,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    spatial_scale: float,
    clockwise_mode: bool,
) -> ArrayT:
    """ROI align of rotated boxes as the OpenVINO operation of opset 15.

    Parameters
    ----------
    rois : array_like
        Shape (K, 5): centre x, centre y, width and height in image pixels, and angle in radians.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive.
    clockwise_mode : bool
        Whether positive angles rotate clockwise, as the image is displayed.

    Returns
    -------
    ndarray
        Shape (K, C, pooled_h, pooled_w).

    Notes
    -----
    OpenVINO rejects a negative side if the grid is adaptive; here such a box is pooled to 0.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import openvino
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> quarter = [[2.5, 2.5, 4, 2, np.pi / 2]]
    >>> openvino.ROIAlignRotated(data, quarter, [0], 2, 2, 1, 1.0, False).round(3)
    array([[[[17.5,  7.5],
             [18.5,  8.5]]]], dtype=float32)
    """
    with Call(ROTATED_FORM, data=data, rois=rois, batch_indices=batch_indices) as call:
        placed = _align_rotated(sampling_ratio, spatial_scale, clockwise_mode)
        return call.averages(call.request(placed, (pooled_h, pooled_w)))


def _align_rotated(sampling_ratio: int, spatial_scale: float, clockwise_mode: bool) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    clockwise = check.flag("clockwise_mode", clockwise_mode)
    placed = _rotated.definition(scale, 0, True, clockwise)
    return placed._replace(sampling=check.sampling_pair("sampling_ratio", sampling_ratio))


@for_every_array
def ROIAlignRotated_backward(  # noqa: N802
    grad_output: ArrayT,
    rois: Any,
    batch_indices: Any,
    input_shape: Sequence[int],
    sampling_ratio: int,
    spatial_scale: float,
    clockwise_mode: bool,
) -> ArrayT:
    """Return the gradient of :func:`ROIAlignRotated` with respect to `data`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, pooled_h, pooled_w).
    """
    with Call(
        ROTATED_FORM, grad_output=grad_output, rois=rois, batch_indices=batch_indices
    ) as call:
        placed = _align_rotated(sampling_ratio, spatial_scale, clockwise_mode)
        gradient, regions, pooling, shape = call.checked_backward(placed, input_shape)
        return call.average_backward(gradient, regions, pooling, shape)


# ---- Several maps


def _on_levels(
    strides: Sequence[float],
    is_aligned: bool,
    rois: Any,
    batch_indices: Any,
    images: int,
    dtype: np.dtype[Any],
    form: Form,
) -> Regions:
    """Return boxes in cells of their maps, with the index of each one's map; -1 for none."""
    table = _boxes.box_table(form.boxes, rois, (4,), "(K, 4): x1, y1, x2, y2")
    boxes = _boxes.coordinates(table, dtype)
    xp, real = conventions.library_of(boxes).xp(), conventions.scalar_of(boxes)
    with np.errstate(invalid="ignore", over="ignore"):
        widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        has_area = widths * heights > 0
    last, canonical = len(strides) - 1, (224.0, 2)
    levels = conventions.level_by_logarithm(
        widths, heights, (0, last), canonical, add_to_ratio=1e-6
    )
    levels = xp.where(has_area, levels, np.int64(-1))
    scales = xp.where(levels == 0, real(1) / real(strides[0]), real(0))
    for level, stride in enumerate(strides):
        scales = xp.where(levels == level, real(1) / real(stride), scales)
    cells = conventions.in_map_cells(boxes, scales[:, None], is_aligned)
    if batch_indices is None:
        return Regions(cells, levels * 0, levels)
    indices = _boxes.batch_indices(form.indices, batch_indices, table.shape[0], images)
    return Regions(cells, indices, levels)


class _Extractor(NamedTuple):
    """The checked options of the feature extractor."""

    form: Form
    definition: Definition
    scales: tuple[float, ...]


def _extractor(
    argument: str, maps: int, sampling_ratio: int, pyramid_scales: Any, aligned: bool
) -> _Extractor:
    """Return the options for as many maps as `argument` holds."""
    strides = check.sequence("pyramid_scales", pyramid_scales)
    if len(strides) != maps:
        raise ValueError(f"pyramid_scales must hold one number per map, {maps}: {len(strides)}")
    for i, stride in enumerate(strides):
        if check.whole_number(f"pyramid_scales[{i}]", stride) < 1:
            raise ValueError(f"pyramid_scales[{i}] must be at least 1, got {stride}")
    read = functools.partial(_on_levels, strides, check.flag("aligned", aligned))
    # Aligned boxes, too, are at least one cell long: they are passed in cells, with their shift.
    definition = Definition(
        "roi_align", sampling=check.sampling_pair("sampling_ratio", sampling_ratio)
    )
    return _Extractor(Form(features=argument, read=read), definition, (1.0,) * maps)


@for_every_array
def ExperimentalDetectronROIFeatureExtractor(  # noqa: N802 - OpenVINO's name
    rois: Any,
    pyramid_layers: Sequence[ArrayT],
    *,
    output_size: int | Sequence[int],
    sampling_ratio: int,
    pyramid_scales: Sequence[int],
    aligned: bool = False,
    batch_indices: Any = None,
) -> ArrayT:
    """ROI align over a pyramid as the OpenVINO operation of opset 6.

    The level of a box is ``floor(2 + log2(side / 224 + 1e-6))``, counted from the first map and
    limited to the maps, where the side is the square root of the area.

    Parameters
    ----------
    rois, sampling_ratio
        As in :func:`ROIAlign`.
    pyramid_layers : sequence of ndarray
        Maps, shape (N, C, H, W), each with its own H and W.
    output_size : int or (int, int)
        Bins: rows and columns. OpenVINO has squares only.
    pyramid_scales : sequence of int
        Image pixels per cell of each map.
    aligned : bool
        Shift by half a cell. Unlike in other systems, boxes are at least one cell long even so.
    batch_indices : array_like of int, optional
        Shape (K,): the image of each box. By default this is image 0, the only one that OpenVINO
        reads.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns); 0 for a box without area. OpenVINO's second output is `rois`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import openvino
    >>> layers = [np.full((1, 1, 8, 8), level, np.float32) for level in (3, 4)]
    >>> openvino.ExperimentalDetectronROIFeatureExtractor(
    ...     [[0, 0, 30, 30], [0, 0, 300, 300], [3, 3, 3, 3]],
    ...     layers,
    ...     output_size=1,
    ...     sampling_ratio=2,
    ...     pyramid_scales=[32, 64],
    ... ).ravel()
    array([3., 4., 0.], dtype=float32)
    """
    layers = check.sequence("pyramid_layers", pyramid_layers)
    options = _extractor("pyramid_layers", len(layers), sampling_ratio, pyramid_scales, aligned)
    with Call(options.form, pyramid_layers=layers, rois=rois, batch_indices=batch_indices) as call:
        maps = check.pyramid("pyramid_layers", check.numbered("pyramid_layers", layers))
        size = check.size_pair("output_size", output_size)
        pooling = Pooling(options.definition, size, scales=options.scales)
        for i, one in enumerate(maps):
            check_sizes(f"pyramid_layers[{i}]", one.shape, "output_size", pooling)
        return call.average(maps, call.regions(maps[0].shape[0], check.dtype_of(maps[0])), pooling)


@for_every_array
def ExperimentalDetectronROIFeatureExtractor_backward(  # noqa: N802
    grad_output: ArrayT,
    rois: Any,
    input_shapes: Sequence[Sequence[int]],
    *,
    sampling_ratio: int,
    pyramid_scales: Sequence[int],
    aligned: bool = False,
    batch_indices: Any = None,
) -> list[ArrayT]:
    """Return the gradients of the feature extractor with respect to its maps.

    Parameters
    ----------
    input_shapes : sequence of sequence of int
        (N, C, H, W) of each map.

    Returns
    -------
    list of ndarray
        Of the maps' shapes.
    """
    named = check.numbered("input_shapes", input_shapes)
    options = _extractor("input_shapes", len(named), sampling_ratio, pyramid_scales, aligned)
    with Call(
        options.form, grad_output=grad_output, rois=rois, batch_indices=batch_indices
    ) as call:
        shapes = check.pyramid_shapes("input_shapes", named)
        checked = call.checked_gradient(
            "input_shapes", shapes[0], options.definition, scales=options.scales
        )
        return call.average_backward_of_maps(*checked, shapes)
