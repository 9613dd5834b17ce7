"""TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .library import InstalledLibrary
from .task import LevelTask, Task

__all__ = ["TensorFlow"]


class TensorFlow(InstalledLibrary):
    """TensorFlow's raw operators, run eagerly."""

    modules = ("tensorflow",)
    operations = ("crop_and_resize",)
    layouts = ("NHWC",)
    gradients = ("features", "boxes")
    remarks: ClassVar[dict[str, str]] = {"float64": "it takes boxes in float32"}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow

        tensorflow.config.set_visible_devices([], "GPU")
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
        self.tensorflow = tensorflow

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        raw, constant = self.tensorflow.raw_ops, self.tensorflow.constant
        boxes = constant(level.rois[:, 1:].astype(np.float32))
        images = constant(level.rois[:, 0].astype(np.int32))
        if not task.backward:
            x, size = constant(level.features), constant(np.array(task.output_size, np.int32))
            return lambda: raw.CropAndResize(
                image=x,
                boxes=boxes,
                box_ind=images,
                crop_size=size,
                extrapolation_value=task.extrapolation_value,
            )
        grad = constant(level.grad.astype(np.float32))
        if task.wrt == "boxes":
            x = constant(level.features)
            return lambda: raw.CropAndResizeGradBoxes(
                grads=grad, image=x, boxes=boxes, box_ind=images
            )
        shape = constant(np.array(level.features.shape, np.int32))
        kind = self.tensorflow.as_dtype(level.features.dtype)
        return lambda: raw.CropAndResizeGradImage(
            grads=grad, boxes=boxes, box_ind=images, image_size=shape, T=kind
        )

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        return [result.numpy() for result in results]
