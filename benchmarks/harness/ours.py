"""Calls of roipool for a task, as a user would write them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import roipool
from roipool import _arguments as check
from roipool.compat import torchvision
from roipool.tools.libraries import InstalledLibrary, LevelTask, Task

__all__ = ["Roipool", "moved", "prepare"]


class Roipool(InstalledLibrary):
    """roipool itself: the calls that a user would write."""

    modules = ("roipool",)

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        roipool.set_num_threads(threads)

    @classmethod
    def check(cls, task: Task) -> None:
        """Accept every task."""

    def level(self, task: Task, level: LevelTask) -> Callable[..., Any]:
        """Return the call for one level; it takes ``out``."""
        if task.operation == "crop_and_resize":
            return _crop_and_resize(task, level)
        if task.operation.startswith("ps_"):
            return _position_sensitive(task, level)
        if task.operation == "deform_roi_pool":
            return _deform_roi_pool(task, level)
        if task.operation == "deformable_ps_roi_pool":
            return _deformable_ps_roi_pool(task, level)
        return (_roi_pool if task.operation == "roi_pool" else _roi_align)(task, level)


def prepare(task: Task, out_reuse: bool = False) -> Callable[[], list[Any]]:
    """Return the timed call, which calls every level once.

    Parameters
    ----------
    task : Task
        The task, with NumPy or CuPy arrays.
    out_reuse : bool
        Whether all calls write into the same arrays instead of allocating new ones.

    Returns
    -------
    callable
        Returns the result of each level.
    """
    library = Roipool(roipool.get_num_threads())
    calls = [library.level(task, level) for level in task.levels]
    if out_reuse:
        firsts = [call() for call in calls]
        calls = [
            functools.partial(call, out=first) for call, first in zip(calls, firsts, strict=True)
        ]
    return lambda: [call() for call in calls]


def moved(task: Task, move: Callable[[Any], Any]) -> Task:
    """Return the task with `move`, such as ``cupy.asarray``, applied to every array."""

    def moved_level(level: LevelTask) -> LevelTask:
        arrays = level.features, level.rois, level.grad, level.offsets
        features, rois, grad, offsets = (None if a is None else move(a) for a in arrays)
        return LevelTask(features, rois, grad, level.scale, offsets)

    return task._replace(levels=[moved_level(level) for level in task.levels])


def _crop_and_resize(task: Task, level: LevelTask) -> Callable[..., Any]:
    x, layout = level.features, check.layout(task.layout)
    boxes, images = level.rois[:, 1:].copy(), level.rois[:, 0].astype(np.int32)
    if task.backward:
        return functools.partial(
            roipool.crop_and_resize_backward, level.grad, boxes, images, x.shape, layout=layout
        )
    return functools.partial(
        roipool.crop_and_resize, x, boxes, images, task.output_size, layout=layout
    )


def _position_sensitive(task: Task, level: LevelTask) -> Callable[..., Any]:
    """Return the core's align, and torchvision's pooling, whose rule is not the core's."""
    x, rois, scale, ratio = level.features, level.rois, level.scale, task.sampling_ratio
    if task.operation == "ps_roi_align":
        if task.backward:
            return functools.partial(
                roipool.ps_roi_align_backward, level.grad, rois, x.shape, scale, ratio
            )
        return functools.partial(roipool.ps_roi_align, x, rois, task.output_size, scale, ratio)
    if task.backward:
        return functools.partial(torchvision.ps_roi_pool_backward, level.grad, rois, x.shape, scale)
    return functools.partial(torchvision.ps_roi_pool, x, rois, task.output_size, scale)


def _deform_roi_pool(task: Task, level: LevelTask) -> Callable[..., Any]:
    x, rois, scale, ratio = level.features, level.rois, level.scale, task.sampling_ratio
    layout = check.layout(task.layout)
    offsets = level.offsets.transpose(0, 2, 3, 1) if layout == "NHWC" else level.offsets
    if task.backward:
        return functools.partial(
            roipool.deform_roi_pool_backward,
            level.grad,
            rois,
            offsets,
            x.shape,
            scale,
            ratio,
            layout=layout,
        )
    return functools.partial(
        roipool.deform_roi_pool, x, rois, offsets, task.output_size, scale, ratio, layout=layout
    )


def _deformable_ps_roi_pool(task: Task, level: LevelTask) -> Callable[..., Any]:
    """Return the forward, or both gradients, of which only that of the features is returned."""
    x, rois, offsets = level.features, level.rois, level.offsets
    how = level.scale, task.sampling_ratio
    if not task.backward:
        place = rois, offsets, task.output_size
        return functools.partial(roipool.deformable_ps_roi_pool, x, *place, *how)

    def both(**out: Any) -> Any:
        roipool.deformable_ps_roi_pool_backward_offsets(level.grad, x, rois, offsets, *how)
        place = rois, offsets, x.shape
        return roipool.deformable_ps_roi_pool_backward(level.grad, *place, *how, **out)

    return both


def _roi_pool(task: Task, level: LevelTask) -> Callable[..., Any]:
    x, rois, layout = level.features, level.rois, check.layout(task.layout)
    forward = functools.partial(
        roipool.roi_pool, x, rois, task.output_size, level.scale, layout=layout
    )
    if task.backward:
        argmax = forward(return_argmax=True)[1]
        return functools.partial(
            roipool.roi_pool_backward, level.grad, argmax, rois, x.shape, layout=layout
        )
    if task.argmax:
        return lambda **out: forward(return_argmax=True, **out)[0]
    return forward


def _roi_align(task: Task, level: LevelTask) -> Callable[..., Any]:
    x, rois, scale, ratio = level.features, level.rois, level.scale, task.sampling_ratio
    options: dict[str, Any] = {"aligned": task.aligned, "mode": task.mode, "layout": task.layout}
    forward = functools.partial(
        roipool.roi_align, x, rois, task.output_size, scale, ratio, **options
    )
    if not task.backward:
        return forward
    if task.mode == "max":
        options["argmax"] = forward(return_argmax=True)[1]
    return functools.partial(
        roipool.roi_align_backward, level.grad, rois, x.shape, scale, ratio, **options
    )
