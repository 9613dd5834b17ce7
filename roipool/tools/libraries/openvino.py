"""OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .library import InstalledLibrary
from .task import LevelTask, Task

__all__ = ["OpenVino"]


# Keeps OpenVINO from computing in bfloat16.
_PRECISION = {"float16": "f16", "float32": "f32"}


class OpenVino(InstalledLibrary):
    """OpenVINO, running compiled models of one operation that share NumPy's memory."""

    modules = ("openvino",)
    operations = ("roi_align", "roi_pool", "deformable_ps_roi_pool")
    dtypes = tuple(_PRECISION)
    gradients = ()

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import openvino

        self.openvino = openvino

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        ops = self.openvino.opset9
        dtype = level.features.dtype
        rois = level.rois.astype(dtype)
        x = ops.parameter(level.features.shape, dtype)
        if task.operation == "roi_pool":
            feeds = [level.features, rois]
            boxes = ops.parameter(rois.shape, dtype)
            node = ops.roi_pooling(x, boxes, list(task.output_size), level.scale, "max")
            parameters = [x, boxes]
        elif task.operation == "deformable_ps_roi_pool":
            feeds = [level.features, rois, level.offsets.astype(dtype)]
            parameters = [x, *(ops.parameter(feed.shape, dtype) for feed in feeds[1:])]
            bins, _ = task.output_size
            node = ops.deformable_psroi_pooling(
                *parameters[:2],
                output_dim=level.features.shape[1] // bins**2,
                spatial_scale=level.scale,
                group_size=bins,
                spatial_bins_x=task.sampling_ratio,
                spatial_bins_y=task.sampling_ratio,
                trans_std=0.1,
                part_size=bins,
                offsets=parameters[2],
            )
        else:
            feeds = [level.features, np.ascontiguousarray(rois[:, 1:]), rois[:, 0].astype(np.int32)]
            boxes = ops.parameter(feeds[1].shape, dtype)
            images = ops.parameter(feeds[2].shape, np.int32)
            sampling = task.sampling_ratio, level.scale, "avg"
            convention = "half_pixel_for_nn" if task.aligned else "asymmetric"
            node = ops.roi_align(x, boxes, images, *task.output_size, *sampling, convention)
            parameters = [x, boxes, images]
        model = self.openvino.Model([node], parameters, "one")
        settings = {
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": _PRECISION[dtype.name],
        }
        request = self.openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]
