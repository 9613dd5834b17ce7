"""roipool's side of a task: the same call that a user would write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import roipool
from roipool.cli.bench.peers import Level, Task

__all__ = ["moved", "prepare"]


def prepare(task: Task, out_reuse: bool = False) -> Callable[[], list[Any]]:
    """Return the call that is timed: every level once.

    Parameters
    ----------
    task : Task
        With NumPy or with CuPy arrays.
    out_reuse : bool
        Write into the same arrays at every call, in place of fresh ones.

    Returns
    -------
    callable
        Returns the result of each level.
    """
    calls = [_call(task, level) for level in task.levels]
    if out_reuse:
        firsts = [call() for call in calls]
        calls = [
            functools.partial(call, out=first) for call, first in zip(calls, firsts, strict=True)
        ]
    return lambda: [call() for call in calls]


def moved(task: Task, move: Callable[[Any], Any]) -> Task:
    """Return the task with every array passed through `move`, such as ``cupy.asarray``."""

    def moved_level(level: Level) -> Level:
        grad = None if level.grad is None else move(level.grad)
        return Level(move(level.features), move(level.rois), grad, level.scale)

    return task._replace(levels=[moved_level(level) for level in task.levels])


def _call(task: Task, level: Level) -> Callable[..., Any]:
    x, rois, layout = level.features, level.rois, task.layout
    if task.operation == "crop_and_resize":
        boxes, images = rois[:, 1:].copy(), rois[:, 0].astype(np.int32)
        if not task.backward:
            return functools.partial(
                roipool.crop_and_resize, x, boxes, images, task.output_size, layout=layout
            )
        return functools.partial(
            roipool.crop_and_resize_backward, level.grad, boxes, images, x.shape, layout=layout
        )
    if task.operation == "roi_pool":
        forward = functools.partial(
            roipool.roi_pool, x, rois, task.output_size, level.scale, layout=layout
        )
        if not task.backward:
            return _with_winners(forward) if task.argmax else forward
        argmax = forward(return_argmax=True)[1]
        return functools.partial(
            roipool.roi_pool_backward, level.grad, argmax, rois, x.shape, layout=layout
        )
    sampling: dict[str, Any] = {"aligned": task.aligned, "mode": task.mode, "layout": layout}
    scale, ratio = level.scale, task.sampling_ratio
    align = functools.partial(
        roipool.roi_align, x, rois, task.output_size, scale, ratio, **sampling
    )
    if not task.backward:
        return align
    if task.mode == "max":
        sampling["argmax"] = align(return_argmax=True)[1]
    return functools.partial(
        roipool.roi_align_backward, level.grad, rois, x.shape, scale, ratio, **sampling
    )


def _with_winners(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Ask for the winners too, but return the pooled values only."""
    return lambda **out: forward(return_argmax=True, **out)[0]
