"""Adapters of libraries of torch operators: torchvision, mmcv and detectron2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .library import Absent, InstalledLibrary
from .task import LevelTask, Task

__all__ = ["Detectron2", "Mmcv", "Torchvision"]


class Torch(InstalledLibrary):
    """A library of operators for torch."""

    def __init__(self, threads: int, device: str = "cpu") -> None:
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise Absent("torch finds no CUDA device")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch, self.device = torch, device

    def _tensor(self, task: Task, array: Any) -> Any:
        """Return an NCHW tensor, with NHWC arrays in torch's channels_last format."""
        if array is None:
            return None
        if array.dtype.name == "bfloat16":
            tensor = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(array)
        tensor = tensor.to(self.device)
        return tensor.permute(0, 3, 1, 2) if task.layout == "NHWC" else tensor

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        half = self.torch.bfloat16  # NumPy has no such type
        results = [result.float() if result.dtype == half else result for result in results]
        arrays = [result.cpu().numpy() for result in results]
        return [a.transpose(0, 2, 3, 1) for a in arrays] if task.layout == "NHWC" else arrays


class Torchvision(Torch):
    """torchvision's operators, called without autograd; detectron2 calls them, too."""

    modules = ("torch", "torchvision")
    operations = (*InstalledLibrary.operations, "ps_roi_align", "ps_roi_pool")
    layouts = ("NCHW", "NHWC")
    dtypes = (*InstalledLibrary.dtypes, "bfloat16")
    remarks: ClassVar[dict[str, str]] = {"float16": "it computes positions in float16"}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import torchvision  # noqa: F401 - registers the operators

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        ops = self.torch.ops.torchvision
        x, grad = self._tensor(task, level.features), self._tensor(task, level.grad)
        rois = self.torch.from_numpy(level.rois).to(x)
        scale, size = level.scale, task.output_size
        if task.operation.startswith("ps_"):
            return self._position_sensitive(task, x, rois, grad, scale)
        if task.operation == "roi_pool":
            if not task.backward:
                return lambda: ops.roi_pool(x, rois, scale, *size)[0]
            argmax = ops.roi_pool(x, rois, scale, *size)[1]
            return lambda: ops._roi_pool_backward(grad, rois, argmax, scale, *size, *x.shape)
        sampling = task.sampling_ratio, task.aligned
        if not task.backward:
            return lambda: ops.roi_align(x, rois, scale, *size, *sampling)
        return lambda: ops._roi_align_backward(grad, rois, scale, *size, *x.shape, *sampling)

    def _position_sensitive(
        self, task: Task, x: Any, rois: Any, grad: Any, scale: float
    ) -> Callable[[], Any]:
        ops = self.torch.ops.torchvision
        place = [scale, *task.output_size]
        if task.operation == "ps_roi_align":
            place.append(task.sampling_ratio)
        forward = functools.partial(getattr(ops, task.operation), x, rois, *place)
        if not task.backward:
            return lambda: forward()[0]
        mapping = forward()[1]
        backward = getattr(ops, f"_{task.operation}_backward")
        return functools.partial(backward, grad, rois, mapping, *place, *x.shape)


class _Differentiable(Torch):
    """A library with gradients from torch's autograd; subclasses implement `forward`."""

    def forward(self, task: Task, x: Any, rois: Any, scale: float) -> Any:
        """Return pooled values."""
        raise NotImplementedError

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        x, grad = self._tensor(task, level.features), self._tensor(task, level.grad)
        rois = self.torch.from_numpy(level.rois).to(x)
        forward = functools.partial(self.forward, task, x, rois, level.scale)
        if not task.backward:
            return forward
        with self.torch.enable_grad():
            x.requires_grad_()
            pooled = forward()
        return lambda: self.torch.autograd.grad([pooled], [x], [grad], retain_graph=True)[0]


class Mmcv(_Differentiable):
    """mmcv's compiled operators."""

    modules = ("torch", "mmcv")
    operations = (*InstalledLibrary.operations, "roi_align_rotated")
    modes = ("avg", "max")

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import mmcv.ops

        self.ops = mmcv.ops

    def forward(self, task: Task, x: Any, rois: Any, scale: float) -> Any:
        if task.operation == "roi_pool":
            return self.ops.roi_pool(x, rois, task.output_size, scale)
        size, ratio = task.output_size, task.sampling_ratio
        if task.operation == "roi_align_rotated":
            return self.ops.roi_align_rotated(x, rois, size, scale, ratio, task.aligned)
        return self.ops.roi_align(x, rois, size, scale, ratio, task.mode, task.aligned)


class Detectron2(_Differentiable):
    """detectron2's layers; ROIAlign calls torchvision's operator."""

    modules = ("torch", "detectron2")
    operations = ("roi_align", "roi_align_rotated")

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        from detectron2.layers import ROIAlign, ROIAlignRotated

        self.upright, self.rotated = ROIAlign, ROIAlignRotated

    def forward(self, task: Task, x: Any, rois: Any, scale: float) -> Any:
        sampling = task.output_size, scale, task.sampling_ratio
        if task.operation == "roi_align":
            return self.upright(*sampling, task.aligned)(x, rois)
        degrees = self.torch.cat([rois[:, :5], self.torch.rad2deg(rois[:, 5:])], dim=1)
        return self.rotated(*sampling)(x, degrees)
