"""What a library is asked to compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Level", "Task", "as_message", "in_given_order", "single_call", "task_of"]


class Level(NamedTuple):
    """One call of an operator: a map and the boxes pooled from it.

    Attributes
    ----------
    features : ndarray
        In the task's layout.
    rois : (K, 5) or (K, 6) float32 or float64 ndarray
        Rows ``[image, x1, y1, x2, y2]`` in pixels, sorted by image; for crop_and_resize
        ``[image, y1, x1, y2, x2]``, normalised; for roi_align_rotated (K, 6), ``[image, cx, cy,
        width, height, angle]``, the angle in radians, counter-clockwise.
    grad : ndarray or None
        The gradient of the output, for a backward.
    scale : float
        Map cells per pixel.
    """

    features: Any
    rois: Any
    grad: Any
    scale: float


class Task(NamedTuple):
    """What is timed: one operation on one or several levels.

    Attributes
    ----------
    operation : {"roi_align", "roi_pool", "crop_and_resize", "roi_align_rotated"}
        Its forward, or its backward.
    backward : bool
        Which of the two.
    mode : {"avg", "max", "max of corners"}
        Of roi_align: of whole samples, or of the corners of samples, each with its weight.
    argmax : bool
        Whether roi_pool's forward must also return the argmax, as training needs it.
    output_size : tuple of int
        Rows and columns of bins.
    sampling_ratio : int
        Of roi_align; 0 is adaptive.
    aligned : bool
        Of roi_align.
    layout : {"NCHW", "NHWC"}
        Of the features and the output.
    levels : list of Level
        The calls that make up one round.
    wrt : {"features", "boxes"}
        What a backward differentiates with respect to.
    extrapolation_value : float
        Of crop_and_resize: of samples outside the map.
    """

    operation: str
    backward: bool
    mode: str
    argmax: bool
    output_size: tuple[int, int]
    sampling_ratio: int
    aligned: bool
    layout: str
    levels: list[Level]
    wrt: str = "features"
    extrapolation_value: float = 0.0


def single_call(
    features: Any, rois: Any, grad: Any, scale: float, options: Mapping[str, Any]
) -> tuple[Task, Any]:
    """Return one call of an operator with boxes in any order.

    Parameters
    ----------
    features, rois, grad, scale
        As of `Level`, but in any order of the boxes; without `grad` it is a forward.
    options : mapping
        The other fields of `Task`; the operation and the output size are needed.

    Returns
    -------
    Task
        With the boxes sorted by image.
    ndarray
        Their order, for `in_given_order`.
    """
    order = np.argsort(rois[:, 0], kind="stable")
    settings: dict[str, Any] = {
        "backward": grad is not None,
        "mode": "avg",
        "argmax": False,
        "sampling_ratio": 0,
        "aligned": False,
        "layout": "NCHW",
        "levels": [Level(features, rois[order], None if grad is None else grad[order], scale)],
    }
    return Task(**{**settings, **options}), order


def in_given_order(found: Any, task: Task, order: Any) -> Any:
    """Return a result of `single_call` for the boxes as they were given."""
    if (task.backward and task.wrt == "features") or len(found) != len(order):
        return found
    restored = np.empty_like(found)
    restored[order] = found
    return restored


def as_message(task: Task) -> dict[str, Any]:
    """Return a task as another process can be told it."""
    return {**task._asdict(), "levels": [level._asdict() for level in task.levels]}


def task_of(message: dict[str, Any]) -> Task:
    """Return the task of a message."""
    return Task(**{**message, "levels": [Level(**level) for level in message["levels"]]})
