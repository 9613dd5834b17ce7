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
    MaxRoiPool, without its argmax. So do functions of ``roipool.compat`` with the same bins and
    samples. Other operations have no ONNX node; neither has ``roi_align`` with ``mode="max"``, as
    ONNX's own maximum is another operation: their export is an error that names them. Batch indices
    and levels are not checked. What ONNX says nothing of, boxes with NaN for example, may differ.

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
        operators.average.default: _average,
        operators.average_of_maps.default: _average_of_maps,
        operators.maximum.default: _maximum,
        operators.checked_numbers.default: _numbers,
    }
    if hasattr(theirs, "roi_pool"):  # torchvision is imported
        table[theirs.roi_pool.default] = _torchvision_roi_pool
    return table


def _nodes() -> Any:
    """Return the nodes, in the oldest operator set that has all operators."""
    from onnxscript import opset18

    return opset18


def _numbers(numbers: Any, *_: Any) -> Any:
    return _nodes().Cast(numbers, to=INT64)


def _average(
    features: Any,
    boxes: Any,
    batch_indices: Any,
    output_size: Sequence[int],
    definition: str,
    scales: Sequence[float],
    sampling: Sequence[int],
    aligned: bool,
    angle_scale: float,
    offset_factor: float,
    group_size: Sequence[int],
    depth: Sequence[int] | None,
    *_: Any,
) -> Any:
    """Return ONNX's own ROI align."""
    _check_align(definition, group_size, depth)
    node, (rows, columns), (scale,) = _nodes(), sampling, scales
    if rows != columns:
        raise ValueError(
            f"ONNX has one sampling_ratio for both axes of {definition}, got {tuple(sampling)}"
        )
    return node.RoiAlign(
        features,
        boxes,
        node.Cast(batch_indices, to=INT64),
        mode="avg",
        output_height=output_size[0],
        output_width=output_size[1],
        sampling_ratio=rows,
        spatial_scale=scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )


def _average_of_maps(
    features: Sequence[Any],
    boxes: Any,
    batch_indices: Any,
    levels: Any,
    output_size: Sequence[int],
    definition: str,
    scales: Sequence[float],
    *placing: Any,
) -> Any:
    node = _nodes()
    pooled, every = [], []
    for level, (maps, scale) in enumerate(zip(features, scales, strict=True)):
        rows = node.Squeeze(node.NonZero(node.Equal(node.Cast(levels, to=INT64), level)), [0])
        own = (node.Gather(boxes, rows), node.Gather(batch_indices, rows))
        pooled.append(_average(maps, *own, output_size, definition, [scale], *placing))
        every.append(rows)
    values = node.Concat(*pooled, axis=0)
    # Each row belongs to one box, so that all rows are overwritten.
    return node.ScatterND(values, node.Unsqueeze(node.Concat(*every, axis=0), [1]), values)


def _maximum(
    features: Any,
    boxes: Any,
    batch_indices: Any,
    output_size: Sequence[int],
    definition: str,
    scales: Sequence[float],
    *_: Any,
) -> Any:
    if definition != "roi_pool":
        raise NotImplementedError(f"ONNX has no node for the maximum of {definition}")
    node, (scale,) = _nodes(), scales
    column = node.Unsqueeze(node.CastLike(batch_indices, boxes), [1])
    return _max_pool(features, node.Concat(column, boxes, axis=1), output_size, scale)


def _max_pool(features: Any, rois: Any, output_size: Sequence[int], scale: float) -> Any:
    node = _nodes()
    pooled = node.MaxRoiPool(features, rois, pooled_shape=list(output_size), spatial_scale=scale)
    # ONNX has no argmax: an empty one makes programs that read it fail.
    no_argmax = node.Cast(node.Slice(node.Shape(features), [0], [0]), to=INT32)
    return pooled, no_argmax


def _torchvision_roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    return _max_pool(input, rois, (pooled_height, pooled_width), spatial_scale)


def _check_align(definition: str, group_size: Sequence[int], depth: Sequence[int] | None) -> None:
    """Check that an average is ONNX's own."""
    what = "position-sensitive " if tuple(group_size) != (1, 1) else ""
    what += f"{definition} of volumes" if depth else definition
    if what != "roi_align":
        raise NotImplementedError(f"ONNX has no node for {what}")
