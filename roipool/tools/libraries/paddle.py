"""Adapter of PaddlePaddle, which uses `OMP_NUM_THREADS` threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .library import InstalledLibrary
from .task import LevelTask, Task

__all__ = ["Paddle"]


class Paddle(InstalledLibrary):
    """PaddlePaddle's operators, with gradients from its autograd."""

    modules = ("paddle",)

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import paddle

        paddle.set_device("cpu")
        self.paddle = paddle

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        paddle = self.paddle
        x, boxes = (
            paddle.to_tensor(array)
            for array in (level.features, level.rois[:, 1:].astype(level.features.dtype))
        )
        counts = np.bincount(level.rois[:, 0].astype(int), minlength=len(level.features))
        per_image = paddle.to_tensor(counts.astype(np.int32))
        size, scale = task.output_size, level.scale
        if task.operation == "roi_pool":

            def forward() -> Any:
                return paddle.vision.ops.roi_pool(x, boxes, per_image, size, scale)

        else:
            sampling = task.sampling_ratio or -1

            def forward() -> Any:
                return paddle.vision.ops.roi_align(
                    x, boxes, per_image, size, scale, sampling, task.aligned
                )

        if not task.backward:
            return forward
        grad = paddle.to_tensor(level.grad)
        x.stop_gradient = False
        pooled = forward()
        return lambda: paddle.grad([pooled], [x], [grad], retain_graph=True)[0]

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        return [result.numpy() for result in results]
