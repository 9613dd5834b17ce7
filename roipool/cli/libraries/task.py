"""What a library is asked to compute, and its way to another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Level", "Task", "load", "save"]


class Level(NamedTuple):
    """One call of an operator: a map and the boxes pooled from it.

    Attributes
    ----------
    features : ndarray
        In the task's layout.
    rois : (K, 5) float32 or float64 ndarray
        Rows ``[image, x1, y1, x2, y2]`` in pixels, sorted by image; for crop_and_resize
        ``[image, y1, x1, y2, x2]``, normalised.
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
    operation : {"roi_align", "roi_pool", "crop_and_resize"}
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


def save(task: Task, folder: Path) -> None:
    """Write a task where another process can `load` it."""
    plain = task._replace(levels=[])._asdict()
    plain["scales"] = [level.scale for level in task.levels]
    (folder / "task.json").write_text(json.dumps(plain))
    for number, level in enumerate(task.levels):
        for name in ("features", "rois", "grad"):
            array = getattr(level, name)
            if array is not None:
                np.save(str(folder / f"{name}{number}.npy"), array)


def load(folder: Path) -> Task:
    """Read a task that `save` wrote."""
    plain = json.loads((folder / "task.json").read_text())

    def array(name: str, number: int) -> Any:
        path = folder / f"{name}{number}.npy"
        return np.load(str(path)) if path.exists() else None

    plain["levels"] = [
        Level(
            features=array("features", n), rois=array("rois", n), grad=array("grad", n), scale=scale
        )
        for n, scale in enumerate(plain.pop("scales"))
    ]
    plain["output_size"] = tuple(plain["output_size"])
    return Task(**plain)
