"""The calls whose kernels are counted: small workloads of the harness, and others for each kernel.

A case is a function of `move`, which copies an array to a device, so that the same call on NumPy
arrays gives the expected results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from harness import ours
from harness.proposals import level_of
from harness.workloads import WORKLOADS, Workload, boxes_of, changed

import roipool
from cuda_model import yardsticks
from roipool.compat import mmcv, onnx
from roipool.tools.libraries import Level, Task, channels_of_groups, moves_bins

Array = Any
Move = Callable[[Any], Any]
Call = Callable[[Move], list[Array]]

_CHANNELS = 64
_STEP = 8  # boxes are rounded to eighths of a pixel, so that coordinates are exact on all machines
_COUNTS = {"fpn-box": 300, "fpn-mask": 50, "vgg16-pool": 100, "c4": 100, "crop-and-resize": 300}
_COUNTS |= {"fpn-deform": 100, "rfcn-pool": 50, "rfcn-align": 50, "rfcn-deform": 20}
_CHANNELS_OF_GROUP = 2


class Case(NamedTuple):
    """A call, and the plain kernels that compute the same, if there are any."""

    name: str
    call: Call
    yardstick: Callable[[Any], list[Array]] | None = None


def task(name: str, backward: bool, dtype: str = "float32", **changes: Any) -> Task:
    """Return the task of a small version of a workload."""
    workload = WORKLOADS[name]
    has_groups = channels_of_groups(workload.operation, workload.output_size) > 1
    small = {"boxes": _COUNTS[name], "channels": _CHANNELS_OF_GROUP if has_groups else _CHANNELS}
    return task_of(changed(workload, **small | changes), backward, dtype)


def task_of(workload: Workload, backward: bool, dtype: str = "float32") -> Task:
    """Return a workload's task, with boxes and values that are exact on all machines."""
    rng = np.random.default_rng(0)
    boxes = np.rint(boxes_of(workload).reshape(-1, 4) * _STEP) / _STEP
    rois = np.concatenate([np.zeros((len(boxes), 1)), boxes], axis=1)
    single = len(workload.levels) == 1
    numbers = np.zeros(len(rois), np.intp) if single else level_of(rois[:, 1:]) - 2
    if workload.operation == "crop_and_resize":
        height, width = workload.image
        rois = rois[:, [0, 2, 1, 4, 3]] / [1, height, width, height, width]
    groups = channels_of_groups(workload.operation, workload.output_size)
    levels = []
    for number, (height, width, stride) in enumerate(workload.levels):
        own = rois[numbers == number].astype(np.float32)
        if len(own) == 0:
            continue

        def values(*sizes: int, groups: int = 1) -> Array:
            channels = workload.channels * groups
            shape = (
                (*sizes, channels)
                if workload.layout == "NHWC"
                else (sizes[0], channels, *sizes[1:])
            )
            return (rng.integers(-500, 500, shape) / 256).astype(_numpy_type(dtype))

        features = values(1, height, width, groups=groups)
        grad = values(len(own), *workload.output_size) if backward else None
        offsets = None
        if moves_bins(workload.operation):
            offsets = rng.integers(-8, 8, (len(own), 2, *workload.output_size)) / np.float32(8)
        levels.append(Level(features, own, grad, 1 / stride, offsets))
    return Task(
        workload.operation,
        backward,
        workload.mode,
        workload.argmax,
        workload.output_size,
        workload.sampling_ratio,
        workload.aligned,
        workload.layout,
        levels,
    )


def _numpy_type(name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _of_task(described: Task, move: Move) -> list[Array]:
    return ours.prepare(ours.moved(described, move))()


def _workload(name: str, backward: bool, dtype: str = "float32", **changes: Any) -> Case:
    described = task(name, backward, dtype, **changes)
    title = f"{name}, {described.layout}, {dtype}, {'backward' if backward else 'forward'}"
    if described.argmax:
        title += " with argmax"
    groups = channels_of_groups(described.operation, described.output_size)
    has_yardstick = dtype == "float32" and groups == 1 and not moves_bins(described.operation)
    yardstick = functools.partial(yardsticks.run, described) if has_yardstick else None
    return Case(title, functools.partial(_of_task, described), yardstick)


def _gradients(described: Task) -> list[Array]:
    """Return gradients for the outputs of a forward's task."""
    rng = np.random.default_rng(1)
    channels = described.levels[0].features.shape[1]
    return [
        np.float32(rng.integers(-9, 9, (len(level.rois), channels, *described.output_size)) / 8)
        for level in described.levels
    ]


def _boxes_gradient(move: Move) -> list[Array]:
    described = task("fpn-box", False)
    return [
        roipool.roi_align_backward_rois(
            move(grad), move(level.features), move(level.rois), level.scale, 2, aligned=False
        )
        for level, grad in zip(described.levels, _gradients(described), strict=True)
    ]


def _multilevel(what: str, move: Move) -> list[Array]:
    described = task("fpn-box", False)
    rois = move(np.concatenate([level.rois for level in described.levels]))
    grad = move(np.concatenate(_gradients(described)))
    maps = [level.features for level in described.levels]
    moved, scales = [move(features) for features in maps], [x.scale for x in described.levels]
    options: dict[str, Any] = {"sampling_ratio": 2, "aligned": False}
    if what == "forward":
        return [roipool.multilevel_roi_align(moved, rois, 7, scales, **options)]
    if what == "backward":
        shapes = [features.shape for features in maps]
        return roipool.multilevel_roi_align_backward(grad, rois, shapes, scales, **options)
    return [roipool.multilevel_roi_align_backward_rois(grad, moved, rois, scales, **options)]


def _rotated(what: str, move: Move) -> list[Array]:
    level = task("c4", False).levels[0]
    low, high = level.rois[:12, 1:3], level.rois[:12, 3:]
    angles = np.arange(12, dtype=np.float32)[:, None] / 8
    rois = np.concatenate([level.rois[:12, :1], (low + high) / 2, high - low, angles], axis=1)
    features, boxes = move(level.features), move(rois.astype(np.float32))
    grad = move(np.float32(np.random.default_rng(1).integers(-9, 9, (12, _CHANNELS, 7, 7)) / 8))
    if what == "forward":
        return [roipool.roi_align_rotated(features, boxes, 7, level.scale, 2)]
    if what == "backward":
        shape = level.features.shape
        return [roipool.roi_align_rotated_backward(grad, boxes, shape, level.scale, 2)]
    return [roipool.roi_align_rotated_backward_rois(grad, features, boxes, level.scale, 2)]


def _volumes(what: str, move: Move) -> list[Array]:
    rng = np.random.default_rng(2)
    shape, size, count = (1, _CHANNELS, 24, 32, 32), (4, 4, 4), 40
    ends = np.sort(rng.integers(0, 24 * _STEP, (count, 2, 3)) / _STEP, axis=1)
    rois = move(np.insert(ends.reshape(count, 6), 0, 0, axis=1).astype(np.float32))
    values, upstream = (
        np.float32(rng.integers(-9, 9, extent) / 8) for extent in (shape, (count, shape[1], *size))
    )
    if what == "forward":
        return [roipool.roi_align_3d(move(values), rois, size, 1.0, 2)]
    if what == "backward":
        return [roipool.roi_align_3d_backward(move(upstream), rois, shape, 1.0, 2)]
    return [roipool.roi_align_3d_backward_rois(move(upstream), move(values), rois, 1.0, 2)]


def _nan_restarts(move: Move) -> list[Array]:
    level = task("vgg16-pool", False).levels[0]
    return [onnx.MaxRoiPool(move(level.features), move(level.rois), (7, 7), level.scale)]


def _argmax_positions(move: Move) -> list[Array]:
    level = task("vgg16-pool", False).levels[0]
    features, rois = move(level.features), move(level.rois[:20])
    options: dict[str, Any] = {"sampling_ratio": 2, "pool_mode": "max"}
    pooled, y, x = mmcv.roi_align(features, rois, 7, level.scale, return_argmax=True, **options)
    grad = mmcv.roi_align_backward(pooled, rois, y, x, features.shape, level.scale, **options)
    return [pooled, y, x, grad]


def cases() -> Iterator[Case]:
    """Yield every case."""
    for name in ("fpn-box", "fpn-mask", "vgg16-pool", "c4", "crop-and-resize"):
        for backward in (False, True):
            yield _workload(name, backward)
    for options in ({"layout": "NHWC"}, {"dtype": "float16"}, {"dtype": "bfloat16"}):
        for backward in (False, True):
            yield _workload("fpn-box", backward, **options)
    for backward in (False, True):
        yield _workload("c4", backward, "float64")
    yield _workload("vgg16-pool", False, argmax=True)
    yield _workload("vgg16-pool", True, layout="NHWC")
    yield Case("maxima of samples and their positions (mmcv), both ways", _argmax_positions)
    yield Case("maxima that NaN restarts (ONNX), forward", _nan_restarts)
    yield Case("fpn-box, gradient of boxes", _boxes_gradient)
    for what in ("forward", "backward", "gradient of boxes"):
        yield Case(
            f"fpn-box, one call for all levels, {what}", functools.partial(_multilevel, what)
        )
    for name in ("fpn-deform", "rfcn-pool", "rfcn-align", "rfcn-deform"):
        for backward in (False, True):
            yield _workload(name, backward)
    for what in ("forward", "backward", "gradient of boxes"):
        yield Case(f"rotated boxes, {what}", functools.partial(_rotated, what))
    for what in ("forward", "backward", "gradient of boxes"):
        yield Case(f"boxes of a volume, {what}", functools.partial(_volumes, what))
