"""A task: the description of an operation for a library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "LevelTask",
    "Task",
    "as_message",
    "channels_of_groups",
    "in_given_order",
    "moves_bins",
    "single_call",
    "task_of",
]


class LevelTask(NamedTuple):
    """One call of an operator: a map and the boxes pooled from it."""

    features: Any  # the map, in the task's layout
    # float32 or float64 rows ``[image, x1, y1, x2, y2]`` in pixels, sorted by image. For
    # crop_and_resize normalised ``[image, y1, x1, y2, x2]``; for roi_align_rotated ``[image, cx,
    # cy, width, height, angle]`` with the angle in radians, counter-clockwise.
    rois: Any
    grad: Any  # the gradient of the output, for a backward
    scale: float  # map cells per pixel
    offsets: Any = None  # dx and dy of bins that move, (K, 2, rows, columns) in any layout


class Task(NamedTuple):
    """One operation on one or several levels."""

    # The operation: "roi_align", "roi_pool", "crop_and_resize", "roi_align_rotated", torchvision's
    # "ps_roi_align" or "ps_roi_pool", of which each bin is a group, "deform_roi_pool", or
    # "deformable_ps_roi_pool", whose backward also computes the gradient of the offsets.
    operation: str
    backward: bool  # whether to compute the gradient instead of the forward
    # Reduction of roi_align: "avg" or "max" of samples, or "max of corners" of weighted ones.
    mode: str
    argmax: bool  # whether roi_pool's forward must also return the argmax, as in training
    output_size: tuple[int, int]  # rows and columns of bins
    sampling_ratio: int  # samples of a bin along each axis; 0 is adaptive
    aligned: bool  # option of roi_align
    layout: str  # layout of the features and the output
    levels: list[LevelTask]  # the operator's calls
    wrt: str = "features"  # a backward differentiates with respect to these, or to "boxes"
    # Option of crop_and_resize: the value of samples outside the map.
    extrapolation_value: float = 0.0


def channels_of_groups(operation: str, output_size: tuple[int, int]) -> int:
    """Return how many channels of the map each channel of pooled values comes from."""
    has_groups = operation.startswith(("ps_", "deformable_ps_"))
    return math.prod(output_size) if has_groups else 1


def moves_bins(operation: str) -> bool:
    """Return whether each bin is moved by an offset of its own."""
    return operation.startswith("deform")


def single_call(
    features: Any, rois: Any, grad: Any, scale: float, options: Mapping[str, Any]
) -> tuple[Task, Any]:
    """Return the task of one call, with boxes in any order.

    Parameters
    ----------
    features, rois, grad, scale
        Like the attributes of `LevelTask`, with boxes in any order; with `grad` it is a backward.
    options : mapping
        Other fields of `Task`; the operation and the output size are required.

    Returns
    -------
    Task
        The task, with boxes sorted by image.
    ndarray
        The order of the boxes, for `in_given_order`.
    """
    order = np.argsort(rois[:, 0], kind="stable")
    settings: dict[str, Any] = {
        "backward": grad is not None,
        "mode": "avg",
        "argmax": False,
        "sampling_ratio": 0,
        "aligned": False,
        "layout": "NCHW",
        "levels": [LevelTask(features, rois[order], None if grad is None else grad[order], scale)],
    }
    return Task(**{**settings, **options}), order


def in_given_order(result: Any, task: Task, order: Any) -> Any:
    """Restore the original order of boxes in a result of a task of `single_call`."""
    if (task.backward and task.wrt == "features") or len(result) != len(order):
        return result
    restored = np.empty_like(result)
    restored[order] = result
    return restored


def as_message(task: Task) -> dict[str, Any]:
    """Return the message that describes a task to another process."""
    return {**task._asdict(), "levels": [level._asdict() for level in task.levels]}


def task_of(message: dict[str, Any]) -> Task:
    """Return the task that a message describes."""
    return Task(**{**message, "levels": [LevelTask(**level) for level in message["levels"]]})
