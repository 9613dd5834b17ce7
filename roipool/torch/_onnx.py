"""Operators of exported programs as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

INT32, INT64 = 6, 7  # ONNX's numbers of types


def onnx_translations() -> dict[Any, Callable[..., Any]]:
    """Return ONNX translations of roipool's operators, for ``torch.onnx.export``.

    ``roi_align`` (the average, with one sampling ratio for both axes) becomes RoiAlign-16,
    ``multilevel_roi_align`` one for each map, whose rows are put in order, and ``roi_pool``
    MaxRoiPool, without its argmax. Other operations have no ONNX node; neither has ``roi_align``
    with ``mode="max"``, as ONNX's own maximum is another operation: their export is an error that
    names them. What ONNX says nothing of, boxes with NaN for example, may differ.

    torchvision's ``roi_pool``, for which torch has no translation, becomes MaxRoiPool, too, if
    torchvision is imported before; its ``roi_align`` has a translation of torch's.

    Returns
    -------
    dict
        Operator to translation: the argument `custom_translation_table`.

    Raises
    ------
    ImportError
        If onnxscript is not installed.

    Examples
    --------
    >>> import torch, roipool.torch
    >>> program = torch.onnx.export(  # doctest: +SKIP
    ...     model, inputs, dynamo=True,
    ...     custom_translation_table=roipool.torch.onnx_translations())
    """
    _nodes()
    operators, theirs = torch.ops.roipool, torch.ops.torchvision
    table: dict[Any, Callable[..., Any]] = {
        operators.roi_align.default: _roi_align,
        operators.multilevel_roi_align.default: _multilevel_roi_align,
        operators.roi_pool.default: _roi_pool,
    }
    if hasattr(theirs, "roi_pool"):  # torchvision is imported
        table[theirs.roi_pool.default] = _torchvision_roi_pool
    return table


def _nodes() -> Any:
    """Return the nodes, in the oldest operator set that has all operators."""
    from onnxscript import opset18

    return opset18


def _roi_align(
    features: Any,
    rois: Any,
    batch_indices: Any,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: Sequence[int],
    aligned: bool,
) -> Any:
    boxes, indices = _boxes_and_indices(rois, batch_indices)
    ratio = _one_ratio("roi_align", sampling_ratio)
    return _average(features, boxes, indices, output_size, spatial_scale, ratio, aligned)


def _multilevel_roi_align(
    features: Sequence[Any],
    rois: Any,
    batch_indices: Any,
    levels: Any,
    output_size: Sequence[int],
    spatial_scales: Sequence[float],
    sampling_ratio: Sequence[int],
    aligned: bool,
) -> Any:
    node = _nodes()
    boxes, indices = _boxes_and_indices(rois, batch_indices)
    ratio = _one_ratio("multilevel_roi_align", sampling_ratio)
    pooled, every = [], []
    for level, (maps, scale) in enumerate(zip(features, spatial_scales, strict=True)):
        rows = node.Squeeze(node.NonZero(node.Equal(node.Cast(levels, to=INT64), level)), [0])
        own = (node.Gather(boxes, rows), node.Gather(indices, rows))
        pooled.append(_average(maps, *own, output_size, scale, ratio, aligned))
        every.append(rows)
    values = node.Concat(*pooled, axis=0)
    # Each row belongs to one box, so that all rows are overwritten.
    return node.ScatterND(values, node.Unsqueeze(node.Concat(*every, axis=0), [1]), values)


def _roi_pool(
    features: Any, rois: Any, batch_indices: Any, output_size: Sequence[int], spatial_scale: float
) -> Any:
    node = _nodes()
    if batch_indices is not None:
        column = node.Unsqueeze(node.CastLike(batch_indices, rois), [1])
        rois = node.Concat(column, rois, axis=1)
    pooled = node.MaxRoiPool(
        features, rois, pooled_shape=list(output_size), spatial_scale=spatial_scale
    )
    # ONNX has no argmax: an empty one makes programs that read it fail.
    no_argmax = node.Cast(node.Slice(node.Shape(features), [0], [0]), to=INT32)
    return pooled, no_argmax


def _torchvision_roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    return _roi_pool(input, rois, None, (pooled_height, pooled_width), spatial_scale)


def _boxes_and_indices(rois: Any, batch_indices: Any) -> tuple[Any, Any]:
    """Return boxes, and their batch indices as int64."""
    node = _nodes()
    if batch_indices is not None:
        return rois, node.Cast(batch_indices, to=INT64)
    indices = node.Squeeze(node.Slice(rois, [0], [1], [1]), [1])
    return node.Slice(rois, [1], [5], [1]), node.Cast(indices, to=INT64)


def _one_ratio(name: str, sampling_ratio: Sequence[int]) -> int:
    rows, columns = sampling_ratio
    if rows != columns:
        raise ValueError(
            f"ONNX has one sampling_ratio for both axes of {name}, got {tuple(sampling_ratio)}"
        )
    return rows


def _average(
    features: Any,
    boxes: Any,
    indices: Any,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """Return ONNX's own ROI align."""
    return _nodes().RoiAlign(
        features,
        boxes,
        indices,
        mode="avg",
        output_height=output_size[0],
        output_width=output_size[1],
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )
