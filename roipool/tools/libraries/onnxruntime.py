"""Adapter of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .library import InstalledLibrary
from .task import LevelTask, Task

__all__ = ["OnnxRuntime"]


_HALF_PIXEL = {True: "half_pixel", False: "output_half_pixel"}


class OnnxRuntime(InstalledLibrary):
    """ONNX Runtime, running models of one node with NumPy arrays."""

    modules = ("onnxruntime",)
    operations = (*InstalledLibrary.operations, "crop_and_resize")
    modes = ("avg", "max of corners")
    gradients = ()

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import onnx
        import onnxruntime

        self.onnx, self.runtime = onnx, onnxruntime

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        size, scale = list(task.output_size), level.scale
        feeds = {"x": level.features, "rois": level.rois.astype(level.features.dtype)}
        if task.operation == "roi_pool":
            attributes = {"pooled_shape": size, "spatial_scale": scale}
            return self._session("MaxRoiPool", feeds, attributes)
        crop = task.operation == "crop_and_resize"
        feeds["images"] = feeds["rois"][:, 0].astype(np.int32 if crop else np.int64)
        feeds["rois"] = np.ascontiguousarray(feeds["rois"][:, 1:])
        if crop:
            feeds["size"] = np.array(size, np.int32)
            outside = {"extrapolation_value": task.extrapolation_value}
            return self._session("CropAndResize", feeds, outside, "com.microsoft")
        attributes = {
            "output_height": size[0],
            "output_width": size[1],
            "sampling_ratio": task.sampling_ratio,
            "spatial_scale": scale,
            "coordinate_transformation_mode": _HALF_PIXEL[task.aligned],
            "mode": "avg" if task.mode == "avg" else "max",
        }
        return self._session("RoiAlign", feeds, attributes)

    def _session(
        self, node: str, feeds: dict[str, Any], attributes: dict[str, Any], domain: str = ""
    ) -> Callable[[], Any]:
        helper = self.onnx.helper

        def value(name: str, dtype: Any, ndim: int) -> Any:
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            return helper.make_tensor_value_info(name, kind, [None] * ndim)

        inputs = [value(name, array.dtype, array.ndim) for name, array in feeds.items()]
        output = value("pooled", feeds["x"].dtype, 4)
        nodes = [helper.make_node(node, list(feeds), ["pooled"], domain=domain, **attributes)]
        graph = helper.make_graph(nodes, node, inputs, [output])
        opsets = [helper.make_opsetid("", 16), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        session = self.runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, feeds)[0]
