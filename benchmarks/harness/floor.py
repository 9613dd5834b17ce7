"""The minimum time of a task: its compulsory bytes over the measured memory bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.pool import ThreadPool

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool.compat import torchvision
from roipool.tools.libraries import LevelTask, Task, channels_of_groups

__all__ = ["compulsory_bytes", "memory_bandwidth", "output_bytes"]

IntArray = NDArray[np.int64]

_ROUNDS = 7
_ARGMAX_BYTES = 4
# Images, rows and columns.
_CELL_AXES = {"NCHW": (0, 2, 3), "NHWC": (0, 1, 2)}


def compulsory_bytes(task: Task) -> int:
    """Return the bytes that any implementation must move between memory and processor.

    A forward reads once the map cells that any bin needs, and writes its output. A backward reads
    the gradient of the output and writes the whole gradient of the map. An argmax that the
    operation reads or writes is included.
    """
    return sum(_level_bytes(task, level) for level in task.levels)


def output_bytes(task: Task) -> int:
    """Return the bytes of the arrays that one call returns."""
    if task.backward:
        return sum(level.features.nbytes for level in task.levels)
    return sum(_pooled_bytes(task, level) for level in task.levels)


def memory_bandwidth(threads: int, buffer_bytes: int = 256 << 20) -> float:
    """Measure the memory bandwidth that NumPy reaches.

    Each thread works on its part of two arrays, while NumPy releases the GIL.

    Parameters
    ----------
    threads : int
        Number of threads.
    buffer_bytes : int
        Size of each array, many times the size of the caches.

    Returns
    -------
    float
        Bytes per second: the best of reading (``np.bitwise_or.reduce``) and copying (with each byte
        counted twice), with one thread and with all, over several rounds.
    """
    source, target = (make(buffer_bytes // 8, np.int64) for make in (np.ones, np.zeros))
    target.fill(1)  # zeros are not allocated until they are written
    return max(_bandwidth(source, target, count) for count in {1, threads})


def _bandwidth(source: IntArray, target: IntArray, threads: int) -> float:
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    with ThreadPool(threads) as pool:

        def seconds(work: Callable[..., object]) -> float:
            start = time.perf_counter()
            pool.starmap(work, parts, chunksize=1)
            return time.perf_counter() - start

        copying = min(seconds(lambda a, b: np.copyto(b, a)) for _ in range(_ROUNDS))
        reading = min(seconds(lambda a, b: np.bitwise_or.reduce(a)) for _ in range(_ROUNDS))
    return source.nbytes * max(2 / copying, 1 / reading)


def _level_bytes(task: Task, level: LevelTask) -> int:
    pooled = _pooled_cells(task, level)
    has_argmax = task.operation == "roi_pool" and (task.argmax or task.backward)
    size = _cell_bytes(task, level)
    map_bytes = level.features.nbytes if task.backward else _touched_cells(task, level) * size
    channels = size // level.features.itemsize
    argmax_bytes = pooled * channels * _ARGMAX_BYTES * has_argmax
    return map_bytes + _pooled_bytes(task, level) + argmax_bytes


def _pooled_cells(task: Task, level: LevelTask) -> int:
    return len(level.rois) * task.output_size[0] * task.output_size[1]


def _pooled_bytes(task: Task, level: LevelTask) -> int:
    groups = channels_of_groups(task.operation, task.output_size)
    return _pooled_cells(task, level) * _cell_bytes(task, level) // groups


def _cell_bytes(task: Task, level: LevelTask) -> int:
    """Return the bytes of all channels of one cell."""
    return int(level.features.shape[1 if task.layout == "NCHW" else 3] * level.features.itemsize)


def _touched_cells(task: Task, level: LevelTask) -> int:
    """Count the map cells that the boxes need.

    For averages they are the cells with a nonzero gradient for a gradient of ones, since weights
    are positive. A maximum over samples needs the same cells.
    """
    count, height, width = (level.features.shape[axis] for axis in _CELL_AXES[task.layout])
    if task.operation == "roi_pool":
        return _covered_cells(level, count, height, width)
    if channels_of_groups(task.operation, task.output_size) > 1:
        return _cells_of_groups(task, level, count, height, width)
    shape = (count, 1, height, width)
    ones = np.ones((len(level.rois), 1, *task.output_size), np.float32)
    rois = level.rois.astype(np.float32)
    if task.operation == "crop_and_resize":
        images = rois[:, 0].astype(np.int32)
        grad = roipool.crop_and_resize_backward(ones, rois[:, 1:], images, shape)
    elif task.operation == "deform_roi_pool":
        grad = roipool.deform_roi_pool_backward(
            ones, rois, level.offsets, shape, level.scale, task.sampling_ratio
        )
    else:
        grad = roipool.roi_align_backward(
            ones, rois, shape, level.scale, task.sampling_ratio, aligned=task.aligned
        )
    return int(np.count_nonzero(grad))


def _cells_of_groups(task: Task, level: LevelTask, count: int, height: int, width: int) -> int:
    """Return the mean number of cells that the bins of a group need, of channels of its own."""
    groups = channels_of_groups(task.operation, task.output_size)
    ones = np.ones((len(level.rois), 1, *task.output_size), np.float32)
    place = ones, level.rois, (count, groups, height, width), level.scale
    if task.operation == "ps_roi_pool":
        grad = torchvision.ps_roi_pool_backward(*place)
    elif task.operation == "deformable_ps_roi_pool":
        rois = ones, level.rois.astype(np.float32), level.offsets
        grad = roipool.deformable_ps_roi_pool_backward(*rois, *place[2:], task.sampling_ratio)
    else:
        grad = torchvision.ps_roi_align_backward(*place, task.sampling_ratio)
    return int(np.count_nonzero(grad)) // groups


def _covered_cells(level: LevelTask, count: int, height: int, width: int) -> int:
    """Count the whole cells under boxes with rounded corners, including both ends."""
    covered = np.zeros((count, height, width), bool)
    corners = np.maximum(np.round(level.rois[:, 1:] * level.scale).astype(int), 0)
    for image, (x1, y1, x2, y2) in zip(level.rois[:, 0].astype(int), corners, strict=True):
        covered[image, y1 : y2 + 1, x1 : x2 + 1] = True
    return int(covered.sum())
