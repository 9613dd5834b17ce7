"""The workloads: a table of maps, boxes and operations, and how a row of it becomes arrays."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool.tools.libraries import Level, Task

__all__ = ["WORKLOADS", "Workload", "choose", "task_of"]

FloatArray = NDArray[np.float32]

# A detector's boxes: square roots of areas, in pixels, and aspect ratios, both log-normal. Boxes
# with uniform corners would have four times the side.
_MEDIAN_SIDE = 68.0
_LOG_SIDE = 0.75
_LOG_ASPECT = 0.5


class Workload(NamedTuple):
    """Boxes on one map of one image, and what is done with them.

    Attributes
    ----------
    about : str
        One line for people.
    operation : {"roi_align", "roi_pool", "crop_and_resize"}
        It is timed forward, and backward with respect to the features.
    boxes, channels : int
        How many.
    size : (int, int)
        Rows and columns of the map.
    stride : int
        Pixels per map cell.
    output_size : int
        Rows and columns of bins.
    layout : {"NCHW", "NHWC"}
        Of the map and the output.
    """

    about: str
    operation: str
    boxes: int
    channels: int
    size: tuple[int, int]
    stride: int
    output_size: int = 7
    layout: str = "NCHW"


WORKLOADS = {
    "box-head": Workload("box head of Faster R-CNN", "roi_align", 1000, 256, (100, 168), 8),
    "mask-head": Workload("mask head of Mask R-CNN", "roi_align", 100, 256, (100, 168), 8, 14),
    "vgg16": Workload("VGG16 Faster R-CNN", "roi_pool", 300, 512, (38, 50), 16),
    "crops": Workload(
        "TensorFlow's box head", "crop_and_resize", 1000, 256, (128, 128), 8, 7, "NHWC"
    ),
    "few-boxes": Workload("ten boxes of a 1 MB map", "roi_align", 10, 100, (50, 52), 16),
    "one-box": Workload("what a call costs", "roi_align", 1, 1, (8, 8), 16),
}


def choose(text: str, workloads: Mapping[str, Workload]) -> list[str]:
    """Find the workloads a user means.

    Parameters
    ----------
    text : str
        Comma-separated names, or patterns with ``*`` and ``?``.
    workloads : mapping of str to Workload
        Those that there are, by name.

    Returns
    -------
    list of str
        Keys of `workloads` in the order asked for, each once.

    Raises
    ------
    ValueError
        If a part fits nothing.
    """
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        fits = [name for name in workloads if fnmatchcase(name, part.lower())]
        if not fits:
            raise ValueError(f"there is no workload {part!r}; there are: {', '.join(workloads)}")
        found += fits
    return list(dict.fromkeys(found))


def task_of(workload: Workload, backward: bool) -> Task:
    """Build the arrays, float32, the same every time; `backward` names the backward of the two."""
    rng = np.random.default_rng(0)
    height, width = workload.size
    boxes = _boxes(rng, workload)
    if workload.operation == "crop_and_resize":  # normalised y1, x1, y2, x2
        boxes = boxes[:, [1, 0, 3, 2]] / (np.array([height, width] * 2) * workload.stride)
    rois = np.concatenate([np.zeros((len(boxes), 1)), boxes], axis=1).astype(np.float32)
    bins = (workload.output_size, workload.output_size)
    channels, first = workload.channels, workload.layout == "NCHW"
    shape = (1, channels, height, width) if first else (1, height, width, channels)
    pooled = (len(rois), channels, *bins) if first else (len(rois), *bins, channels)
    features = rng.standard_normal(shape, np.float32)
    grad = rng.standard_normal(pooled, np.float32) if backward else None
    return Task(
        operation=workload.operation,
        backward=backward,
        mode="avg",
        argmax=False,
        output_size=bins,
        sampling_ratio=2,
        aligned=True,
        layout=workload.layout,
        levels=[Level(features, rois, grad, 1 / workload.stride)],
    )


def _boxes(rng: np.random.Generator, workload: Workload) -> NDArray[np.float64]:
    """Draw rows ``x1, y1, x2, y2`` in pixels, wholly inside the image."""
    limit = np.array(workload.size[::-1], float) * workload.stride
    side = _MEDIAN_SIDE * rng.lognormal(0, _LOG_SIDE, (workload.boxes, 1))
    stretch = rng.lognormal(0, _LOG_ASPECT / 2, (workload.boxes, 1))
    size = np.minimum(side * np.concatenate([stretch, 1 / stretch], axis=1), limit)
    low = rng.uniform(size=size.shape) * (limit - size)
    return np.concatenate([low, low + size], axis=1)
