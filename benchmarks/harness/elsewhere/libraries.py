"""Operators of libraries that live in other environments; they use `OMP_NUM_THREADS` threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["ELSEWHERE"]


class _Library:
    """What `roipool.cli.bench.libraries.Library` asks of one; tasks and levels are its own."""

    version = ""

    def prepare(self, task: Any) -> Callable[[], list[Any]]:
        """Build everything that is not to be timed; return the call that is."""
        calls = [self.level(task, level) for level in task.levels]
        return lambda: [call() for call in calls]

    def level(self, task: Any, level: Any) -> Callable[[], Any]:
        """Return the call for one level."""
        raise NotImplementedError

    def arrays(self, task: Any, results: list[Any]) -> list[Any]:
        """Turn what the call returned into NumPy arrays in the task's layout."""
        return results


class MXNet(_Library):
    """MXNet's imperative operators; a backward runs through its autograd."""

    def __init__(self, threads: int) -> None:
        import mxnet

        self.mxnet, self.version = mxnet, "mxnet " + mxnet.__version__

    def prepare(self, task: Any) -> Callable[[], list[Any]]:
        call = super().prepare(task)

        def finished() -> list[Any]:
            results = call()
            for result in results:
                result.wait_to_read()  # its engine computes behind the caller's back
            return results

        return finished

    def level(self, task: Any, level: Any) -> Callable[[], Any]:
        mx = self.mxnet
        x, rois = (
            mx.nd.array(array, dtype=level.features.dtype)
            for array in (level.features, level.rois.astype(level.features.dtype))
        )
        size, scale = task.output_size, level.scale
        if task.operation == "roi_pool":

            def forward() -> Any:
                return mx.nd.ROIPooling(x, rois, pooled_size=size, spatial_scale=scale)

        else:

            def forward() -> Any:
                return mx.nd.contrib.ROIAlign(
                    x,
                    rois,
                    pooled_size=size,
                    spatial_scale=scale,
                    sample_ratio=task.sampling_ratio or -1,
                    aligned=task.aligned,
                )

        if not task.backward:
            return forward
        grad = mx.nd.array(level.grad, dtype=level.grad.dtype)
        x.attach_grad()
        with mx.autograd.record():
            pooled = forward()

        def backward() -> Any:
            pooled.backward(grad, retain_graph=True)
            return x.grad

        return backward

    def arrays(self, task: Any, results: list[Any]) -> list[Any]:
        return [result.asnumpy() for result in results]


class Paddle(_Library):
    """PaddlePaddle's operators; a backward runs through its autograd."""

    def __init__(self, threads: int) -> None:
        import paddle

        paddle.set_device("cpu")
        self.paddle, self.version = paddle, "paddle " + paddle.__version__

    def level(self, task: Any, level: Any) -> Callable[[], Any]:
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

    def arrays(self, task: Any, results: list[Any]) -> list[Any]:
        return [result.numpy() for result in results]


ELSEWHERE: dict[str, Any] = {"mxnet": MXNet, "paddle": Paddle}
