"""OpenVINO's operators, on its CPU plugin, as functions of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
from openvino import opset9

CORE = openvino.Core()
SETTINGS = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}


def infer(node: Any, parameters: list[Any], given: list[Any]) -> Any:
    """Compile a model of one node and run it."""
    model = openvino.Model([node], parameters, "one")
    compiled = CORE.compile_model(model, "CPU", SETTINGS)
    return np.array(compiled(given)[compiled.output(0)])


def roi_align(
    input: Any, boxes: Any, output_size: Any, spatial_scale: float, sampling_ratio: int,
    aligned: bool,
) -> Any:  # fmt: skip
    """Run ROIAlign-9; "half_pixel_for_nn" is what others call aligned."""
    given = [input, np.ascontiguousarray(boxes[:, 1:]), boxes[:, 0].astype(np.int32)]
    parameters = [opset9.parameter(array.shape, array.dtype) for array in given]
    node = opset9.roi_align(
        *parameters, *output_size, max(sampling_ratio, 0), spatial_scale, "avg",
        "half_pixel_for_nn" if aligned else "asymmetric",
    )  # fmt: skip
    return infer(node, parameters, given)


def roi_pool(input: Any, boxes: Any, output_size: Any, spatial_scale: float) -> Any:
    """Run ROIPooling-2, "max"."""
    given = [input, boxes]
    parameters = [opset9.parameter(array.shape, array.dtype) for array in given]
    node = opset9.roi_pooling(*parameters, list(output_size), spatial_scale, "max")
    return infer(node, parameters, given)
