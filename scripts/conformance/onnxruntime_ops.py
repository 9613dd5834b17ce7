"""ONNX Runtime's operators as functions of NumPy arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

KINDS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
}


@cache
def session(node: str, dtype: str, inputs: tuple[str, ...], attributes: tuple[Any, ...]) -> Any:
    """Return a model of one node."""
    kinds = {"X": (KINDS[dtype], 4), "rois": (KINDS[dtype], 2), "images": (TensorProto.INT64, 1)}
    given = [
        helper.make_tensor_value_info(name, kinds[name][0], [None] * kinds[name][1])
        for name in inputs
    ]
    output = helper.make_tensor_value_info("Y", KINDS[dtype], [None] * 4)
    nodes = [helper.make_node(node, list(inputs), ["Y"], **dict(attributes))]
    graph = helper.make_graph(nodes, node, given, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def roi_align(X: Any, rois: Any, batch_indices: Any, **attributes: Any) -> Any:  # noqa: N803
    """Run RoiAlign-16."""
    run = session("RoiAlign", X.dtype.name, ("X", "rois", "images"), tuple(attributes.items()))
    return run.run(None, {"X": X, "rois": rois, "images": batch_indices.astype(np.int64)})[0]


def max_roi_pool(X: Any, rois: Any, pooled_shape: Any, spatial_scale: float) -> Any:  # noqa: N803
    """Run MaxRoiPool-1."""
    attributes = ("pooled_shape", tuple(pooled_shape)), ("spatial_scale", spatial_scale)
    run = session("MaxRoiPool", X.dtype.name, ("X", "rois"), attributes)
    return run.run(None, {"X": X, "rois": rois})[0]
