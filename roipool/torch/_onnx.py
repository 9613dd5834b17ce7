"""Operators of exported programs as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

INT32, INT64 = 6, 7  # ONNX's numbers of types


def onnx_translations() -> dict[Any, Callable[..., Any]]:
    """Return ONNX translations of roipool's operators, for ``torch.onnx.export``.

    ``roi_align`` (the average, with one sampling ratio for both axes) becomes RoiAlign-16, and
    ``roi_pool`` MaxRoiPool, without its argmax. Other operations have no ONNX node; neither has
    ``roi_align`` with ``mode="max"``, as ONNX's own maximum is another operation.

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
    from onnxscript import opset18 as node

    def roi_align(
        features: Any, rois: Any, batch_indices: Any, output_size: Sequence[int],
        spatial_scale: float, sampling_ratio: Sequence[int], aligned: bool,
    ) -> Any:  # fmt: skip
        rows, columns = sampling_ratio
        if rows != columns:
            raise ValueError(
                "ONNX has one sampling_ratio for both axes of roi_align, got "
                f"{tuple(sampling_ratio)}"
            )
        if batch_indices is None:
            boxes = node.Slice(rois, [1], [5], [1])
            indices = node.Squeeze(node.Slice(rois, [0], [1], [1]), [1])
        else:
            boxes, indices = rois, batch_indices
        return node.RoiAlign(
            features, boxes, node.Cast(indices, to=INT64), mode="avg",
            output_height=output_size[0], output_width=output_size[1], sampling_ratio=rows,
            spatial_scale=spatial_scale,
            coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        )  # fmt: skip

    def roi_pool(
        features: Any, rois: Any, batch_indices: Any, output_size: Sequence[int],
        spatial_scale: float,
    ) -> Any:  # fmt: skip
        if batch_indices is not None:
            column = node.Unsqueeze(node.CastLike(batch_indices, rois), [1])
            rois = node.Concat(column, rois, axis=1)
        pooled = node.MaxRoiPool(
            features, rois, pooled_shape=list(output_size), spatial_scale=spatial_scale
        )
        # ONNX has no argmax. It is made empty, so that a program that reads it cannot run.
        no_argmax = node.Cast(node.Slice(node.Shape(features), [0], [0]), to=INT32)
        return pooled, no_argmax

    return {
        torch.ops.roipool.roi_align.default: roi_align,
        torch.ops.roipool.roi_pool.default: roi_pool,
    }
