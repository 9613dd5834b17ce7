"""Runs a task with the plain kernels of yardsticks.cu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import roipool
from roipool import _arguments as check
from roipool._layout import AXES
from roipool.tools.libraries import Level, Task

Array = Any
_TEXT = Path(__file__).with_suffix(".cu")
_OPTIONS = ("-std=c++17",)
_THREADS = 512
_MOST_BLOCKS = 4096
_INTEGERS = "boxes channels height width bins_down bins_across sampling".split()
_SHAPE = np.dtype(
    [
        *((name, np.int32) for name in _INTEGERS),
        ("scale", np.float32),
        ("offset", np.float32),
        ("channels_last", np.int32),
    ]
)
_NAMES = {"roi_align": "align", "roi_pool": "pool", "crop_and_resize": "crop"}


def run(task: Task, cupy: Any) -> list[Array]:
    """Return the results of a task's call, computed by plain kernels."""
    return [_level(task, level, cupy) for level in task.levels]


def _level(task: Task, level: Level, cupy: Any) -> Array:
    channel, row, column = AXES[task.layout]
    sizes = level.features.shape
    down, across = task.output_size
    shape = np.array(
        [
            (
                len(level.rois),
                sizes[channel],
                sizes[row],
                sizes[column],
                down,
                across,
                task.sampling_ratio,
                level.scale,
                0.5 * task.aligned,
                task.layout == "NHWC",
            )
        ],
        _SHAPE,
    )
    pooled = [len(level.rois), 0, 0, 0]
    pooled[channel], pooled[row], pooled[column] = sizes[channel], down, across
    rois = cupy.asarray(level.rois)
    result: Array
    if task.backward:
        result = cupy.zeros(sizes, np.float32)
        arrays = [cupy.asarray(level.grad), rois, result]
        if task.operation == "roi_pool":
            arrays.insert(1, cupy.asarray(_argmax(task, level)))
    else:
        result = cupy.empty(pooled, level.features.dtype)
        arrays = [cupy.asarray(level.features), rois, result]
        if task.operation == "roi_pool":
            arrays.append(cupy.empty(pooled, np.int32))
    name = f"{_NAMES[task.operation]}_{'backward' if task.backward else 'forward'}"
    element = "Half" if level.features.dtype == np.float16 else "float"
    text = f"#define YARDSTICK_ELEMENT {element}\n{_TEXT.read_text()}"
    kernel = cupy.RawKernel(text, name, _OPTIONS)
    blocks = min(-(-int(np.prod(pooled)) // _THREADS), _MOST_BLOCKS)
    with cupy.cuda.Device():
        kernel((blocks,), (_THREADS,), (*arrays, shape))
    return result


def _argmax(task: Task, level: Level) -> Array:
    return roipool.roi_pool(
        level.features,
        level.rois,
        task.output_size,
        level.scale,
        layout=check.layout(task.layout),
        return_argmax=True,
    )[1].astype(np.int32)
