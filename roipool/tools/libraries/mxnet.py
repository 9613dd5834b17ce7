"""Adapter of MXNet, which uses `OMP_NUM_THREADS` threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .library import InstalledLibrary
from .task import LevelTask, Task

__all__ = ["MXNet"]


class MXNet(InstalledLibrary):
    """MXNet's imperative operators, with gradients from its autograd."""

    modules = ("mxnet",)
    operations = ("roi_align", "roi_pool", "deformable_ps_roi_pool")
    remarks: ClassVar[dict[str, str]] = {"float16": "it computes positions in float16"}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import mxnet

        self.mxnet = mxnet

    def prepare(self, task: Task) -> Callable[[], list[Any]]:
        call = super().prepare(task)

        def finished() -> list[Any]:
            results = call()
            for result in results:
                result.wait_to_read()  # MXNet computes asynchronously
            return results

        return finished

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        mx = self.mxnet
        x, rois = (
            mx.nd.array(array, dtype=level.features.dtype)
            for array in (level.features, level.rois.astype(level.features.dtype))
        )
        size, scale = task.output_size, level.scale
        if task.operation == "roi_pool":

            def forward() -> Any:
                return mx.nd.ROIPooling(x, rois, pooled_size=size, spatial_scale=scale)

        elif task.operation == "deformable_ps_roi_pool":
            bins, _ = size
            trans = mx.nd.array(level.offsets, dtype=level.features.dtype)

            def forward() -> Any:
                return mx.nd.contrib.DeformablePSROIPooling(
                    x,
                    rois,
                    trans,
                    spatial_scale=scale,
                    output_dim=x.shape[1] // bins**2,
                    group_size=bins,
                    pooled_size=bins,
                    part_size=bins,
                    sample_per_part=task.sampling_ratio,
                    trans_std=0.1,
                )

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

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        return [result.asnumpy() for result in results]
