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
    """One call of an operator: a map and the boxes pooled from it.

    Attributes
    ----------
    features : ndarray
        The map, in the task's layout.
    rois : (K, 5) or (K, 6) float32 or float64 ndarray
        Rows ``[image, x1, y1, x2, y2]`` in pixels, sorted by image. For crop_and_resize normalised
        ``[image, y1, x1, y2, x2]``; for roi_align_rotated ``[image, cx, cy, width, height, angle]``
        with the angle in radians, counter-clockwise.
    grad : ndarray or None
        The gradient of the output, for a backward.
    scale : float
        Map cells per pixel.
    offsets : (K, 2, rows, columns) ndarray or None
        Of bins that move: dx and dy of each, in any layout of the maps.
    """

    features: Any
    rois: Any
    grad: Any
    scale: float
    offsets: Any = None


class Task(NamedTuple):
    """One operation on one or several levels.

    Attributes
    ----------
    operation : str
        The operation: "roi_align", "roi_pool", "crop_and_resize", "roi_align_rotated",
        torchvision's "ps_roi_align" or "ps_roi_pool", of which each bin is a group,
        "deform_roi_pool", or "deformable_ps_roi_pool", whose backward also computes the gradient of
        the offsets.
    backward : bool
        Whether to compute the gradient instead of the forward.
    mode : {"avg", "max", "max of corners"}
        Reduction of roi_align: the average or maximum of samples, or the maximum of the weighted
        corners of samples.
    argmax : bool
        Whether roi_pool's forward must also return the argmax, as in training.
    output_size : tuple of int
        Rows and columns of bins.
    sampling_ratio : int
        Samples of a bin along each axis; 0 is adaptive.
    aligned : bool
        Option of roi_align.
    layout : {"NCHW", "NHWC"}
        Layout of the features and the output.
    levels : list of Level
        The operator's calls.
    wrt : {"features", "boxes"}
        The argument with respect to which a backward differentiates.
    extrapolation_value : float
        Option of crop_and_resize: the value of samples outside the map.
    """

    operation: str
    backward: bool
    mode: str
    argmax: bool
    output_size: tuple[int, int]
    sampling_ratio: int
    aligned: bool
    layout: str
    levels: list[LevelTask]
    wrt: str = "features"
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
