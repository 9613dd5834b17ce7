"""The workloads: a table of maps, boxes and operations, and functions that build their arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from harness.proposals import FloatArray, Scene, iou, level_of, scene
from roipool.tools.libraries import LevelTask, Task, channels_of_groups, moves_bins

__all__ = ["WORKLOADS", "Workload", "boxes_of", "changed", "choose", "task_of"]

_SEED = 0
_TRAIN_POSITIVE_IOU = 0.5
_TRAIN_POSITIVE_SHARE = 0.25
_JITTER = 2.0  # pixels
# Values repeat after this many, a prime, so that filling large arrays is as fast as a copy.
_VALUES = 1_000_003

Sampler = Callable[[np.random.Generator, Scene, "Workload"], FloatArray]


@dataclass(frozen=True)
class Workload:
    """Boxes on maps, and an operation.

    Attributes
    ----------
    name, code : str
        The name, and a short name that stress tests lack.
    about : str
        A description in one line.
    sampler : callable
        Chooses the boxes of an image from a scene, rows ``x1, y1, x2, y2`` in pixels.
    boxes : int
        Number of boxes per image.
    levels : tuple of (int, int, int)
        Height, width and stride of the maps.
    image : tuple of int
        Height and width in pixels.
    channels : int
        Number of channels of the pooled values, and of the maps of each group of bins.
    other : see `Task`
    peers : bool
        False if the behaviour of other libraries is undefined.
    """

    name: str
    code: str
    about: str
    sampler: Sampler
    boxes: int
    levels: tuple[tuple[int, int, int], ...]
    channels: int = 256
    images: int = 1
    image: tuple[int, int] = (800, 1333)
    operation: str = "roi_align"
    mode: str = "avg"
    argmax: bool = False
    output_size: tuple[int, int] = (7, 7)
    sampling_ratio: int = 0
    aligned: bool = True
    layout: str = "NCHW"
    peers: bool = True

    @property
    def title(self) -> str:
        """Name and code, for reports."""
        return f"{self.name} ({self.code})" if self.code else self.name

    @property
    def operations(self) -> tuple[str, str]:
        """The names of the forward and the backward."""
        return self.operation, f"{self.operation}_backward"


def _best(rng: np.random.Generator, drawn: Scene, workload: Workload) -> FloatArray:
    """Return boxes at test time: the best proposals."""
    return _exactly(rng, drawn.proposals, workload)


def _sampled(rng: np.random.Generator, drawn: Scene, workload: Workload) -> FloatArray:
    """Return boxes at training time: a quarter on objects, including the objects themselves."""
    positive, negative = _split(drawn)
    wanted = round(workload.boxes * _TRAIN_POSITIVE_SHARE)
    chosen = rng.permutation(positive)[:wanted]
    others = rng.permutation(negative)[: workload.boxes - len(chosen)]
    return _exactly(rng, np.concatenate([chosen, others]), workload)


def _positive(rng: np.random.Generator, drawn: Scene, workload: Workload) -> FloatArray:
    """Return boxes of a mask head in training: only those on objects."""
    positive, _ = _split(drawn)
    return _exactly(rng, rng.permutation(positive), workload)


def _split(drawn: Scene) -> tuple[FloatArray, FloatArray]:
    candidates = np.concatenate([drawn.objects, drawn.proposals])
    on_object = iou(candidates, drawn.objects).max(axis=1) >= _TRAIN_POSITIVE_IOU
    return candidates[on_object], candidates[~on_object]


def _exactly(rng: np.random.Generator, boxes: FloatArray, workload: Workload) -> FloatArray:
    """Return the workload's number of boxes; if there are too few, repeat them slightly moved."""
    number = np.arange(workload.boxes)
    again = number >= len(boxes)
    found = boxes[number % len(boxes)]
    found[again] += rng.normal(0, _JITTER, (int(again.sum()), 4))
    found = np.clip(found, 0, np.tile(workload.image[::-1], 2))
    low, high = np.minimum(found[:, :2], found[:, 2:]), np.maximum(found[:, :2], found[:, 2:])
    return np.concatenate([low, high], axis=1)


def _tiled(
    rng: np.random.Generator, drawn: Scene, workload: Workload, box: Sequence[float]
) -> FloatArray:
    """Return copies of one box, given in fractions of the image's width and height."""
    height, width = workload.image
    return np.tile(np.array(box) * [width, height, width, height], (workload.boxes, 1))


def _same(*box: float) -> Sampler:
    return functools.partial(_tiled, box=box)  # unlike a closure, it can be pickled


def _without_area(rng: np.random.Generator, drawn: Scene, workload: Workload) -> FloatArray:
    boxes = _best(rng, drawn, workload)
    return np.concatenate([boxes[:, :2], boxes[:, :2]], axis=1)


_PYRAMID = {"levels": ((200, 336, 4), (100, 168, 8), (50, 84, 16), (25, 42, 32))}
_P3 = {"levels": ((100, 168, 8),)}
_VGG = {"levels": ((38, 50, 16),), "channels": 512, "image": (600, 800), "operation": "roi_pool"}
_C4 = {"levels": ((50, 84, 16),), "channels": 1024, "output_size": (14, 14)}
_CROP = {
    "levels": tuple((1024 // stride, 1024 // stride, stride) for stride in (4, 8, 16, 32)),
    "image": (1024, 1024),
    "operation": "crop_and_resize",
    "layout": "NHWC",
}
_RFCN = {"levels": ((50, 84, 16),), "channels": 21}  # of 21 classes
_PICTURE = {"levels": ((800, 1333, 1),), "channels": 3}
_SMALL = {"levels": ((50, 52, 16),), "channels": 100}
_TINY = {"levels": ((8, 8, 16),), "channels": 1, "image": (128, 128)}
_TWO = {"sampling_ratio": 2, "aligned": False}
_DEFORM = {"operation": "deform_roi_pool", "sampling_ratio": 2}
_RFCN_DEFORM = {"operation": "deformable_ps_roi_pool", "sampling_ratio": 4}
_TRAIN = {"images": 2}
_MASK = {"output_size": (14, 14)}
_MAX = {"mode": "max"}


def _row(name: str, code: str, about: str, sampler: Sampler, boxes: int, *options: Any) -> Workload:
    merged: dict[str, Any] = {}
    for option in options:
        merged |= option
    return Workload(name, code, about, sampler, boxes, **merged)


_ALL = (
    _row("fpn-box", "W1a", "box head, 2 x 2 samples", _best, 1000, _PYRAMID, _TWO),
    _row("fpn-box-adaptive", "W1b", "box head, adaptive", _best, 1000, _PYRAMID),
    _row("fpn-box-train", "W2a", "W1a in training", _sampled, 512, _PYRAMID, _TWO, _TRAIN),
    _row("fpn-box-adaptive-train", "W2b", "W1b in training", _sampled, 512, _PYRAMID, _TRAIN),
    _row("fpn-mask", "W3a", "mask head, 2 x 2 samples", _best, 100, _PYRAMID, _TWO, _MASK),
    _row("fpn-mask-train", "W3b", "mask head in training", _positive, 128, _PYRAMID, _TRAIN, _MASK),
    _row("vgg16-pool", "W4a", "VGG16 Faster R-CNN", _best, 300, _VGG),
    _row("vgg16-pool-train", "W4b", "W4a in training", _sampled, 128, _VGG, {"argmax": True}),
    _row("vgg16-pool-values", "", "W4b without the argmax", _sampled, 128, _VGG),
    _row("c4", "W5a", "ResNet-50 C4", _best, 1000, _C4),
    _row("c4-train", "W5b", "W5a in training", _sampled, 512, _C4, _TRAIN),
    _row("crop-and-resize", "W6a", "TensorFlow's box head", _best, 1000, _CROP),
    _row("crop-and-resize-mask", "W6b", "TensorFlow's mask head", _best, 100, _CROP, _MASK),
    _row("rfcn-pool", "", "R-FCN, whole cells", _best, 300, _RFCN, {"operation": "ps_roi_pool"}),
    _row(
        "rfcn-align",
        "",
        "R-FCN, 2 x 2 samples",
        _best,
        300,
        _RFCN,
        _TWO,
        {"operation": "ps_roi_align"},
    ),
    _row("rfcn-deform", "", "R-FCN, each bin moved", _best, 300, _RFCN, _RFCN_DEFORM),
    _row("fpn-deform", "", "W1a, each bin moved", _best, 1000, _PYRAMID, _DEFORM),
    _row("stress-max-align", "", "maxima of W1a's samples", _best, 1000, _PYRAMID, _TWO, _MAX),
    _row("stress-whole-image", "", "the whole image each time", _same(0, 0, 1, 1), 10, _P3),
    _row("stress-identical", "", "one box each time", _same(0.4, 0.4, 0.5, 0.5), 1000, _P3, _TWO),
    _row("stress-one-box", "", "a single box", _best, 1, _P3),
    _row("stress-many-boxes", "", "many boxes", _best, 100_000, _P3, _TWO, {"channels": 8}),
    _row("stress-three-channels", "", "boxes of a picture", _best, 1000, _PICTURE, _TWO),
    _row("stress-no-area", "", "boxes without area", _without_area, 1000, _P3),
    _row("stress-outside", "", "beside the image", _same(1.5, 1.5, 1.6, 1.6), 1000, _P3, _TWO),
    _row("stress-nan", "", "boxes of NaN", _same(*[np.nan] * 4), 1000, _P3, {"peers": False}),
    _row("small-call", "", "few boxes of a map of 1 MB", _best, 10, _SMALL),
    _row("tiny-call", "", "one box of an 8 x 8 map", _best, 1, _TINY),
)

WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}


def choose(text: str) -> list[Workload]:
    """Select workloads by name.

    Parameters
    ----------
    text : str
        Comma-separated names, codes, or patterns of either with ``*`` and ``?``.

    Returns
    -------
    list of Workload
        Without duplicates, in the order of `text`.

    Raises
    ------
    ValueError
        If a part matches no workload.
    """
    found: list[Workload] = []
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        fits = [w for w in _ALL if any(fnmatchcase(n.lower(), part) for n in (w.name, w.code))]
        if not fits:
            raise ValueError(f"there is no workload {part!r}; there are: {', '.join(WORKLOADS)}")
        found += fits
    if not found:
        raise ValueError(f"no workload named; there are: {', '.join(WORKLOADS)}")
    return list(dict.fromkeys(found))


def changed(workload: Workload, **changes: Any) -> Workload:
    """Return the workload with changes, except those that are None."""
    return replace(workload, **{key: value for key, value in changes.items() if value is not None})


def boxes_of(workload: Workload) -> FloatArray:
    """Draw all boxes with a fixed seed, shape (images, boxes, 4), in pixels."""
    rng = np.random.default_rng(_SEED)
    scenes = [_scene(number, *workload.image) for number in range(workload.images)]
    return np.stack([workload.sampler(rng, drawn, workload) for drawn in scenes])


@functools.cache
def _scene(number: int, height: int, width: int) -> Scene:
    """Return the scene of an image; workloads with images of the same size share scenes."""
    return scene(np.random.default_rng([_SEED, number]), height, width)


def task_of(workload: Workload, dtype: DTypeLike, backward: bool) -> Task:
    """Build the arrays of a workload.

    Parameters
    ----------
    workload : Workload
        The workload.
    dtype : data type
        Type of features and gradients. Boxes are float64 for float64, otherwise float32. For
        float16 they are rounded to it, because some libraries require the features' type.
    backward : bool
        Whether to build a task of the backward, with gradients of the output.

    Returns
    -------
    Task
        The task, without levels that have no boxes.
    """
    dtype = np.dtype(dtype)
    boxes = boxes_of(workload)
    images = np.repeat(np.arange(workload.images), workload.boxes)
    rois = np.concatenate([images[:, None], boxes.reshape(-1, 4)], axis=1)
    single = len(workload.levels) == 1
    level = np.zeros(len(rois), np.intp) if single else level_of(rois[:, 1:]) - 2
    if workload.operation == "crop_and_resize":
        height, width = workload.image
        rois = rois[:, [0, 2, 1, 4, 3]] / [1, height, width, height, width]
    if dtype == np.float16:
        rois = rois.astype(dtype)
    rois = rois.astype(np.float64 if dtype == np.float64 else np.float32)
    values = np.random.default_rng(_SEED).standard_normal(_VALUES, np.float32).astype(dtype)
    groups = channels_of_groups(workload.operation, workload.output_size)
    of_groups = replace(workload, channels=workload.channels * groups)
    levels = []
    for number, (height, width, stride) in enumerate(workload.levels):
        here = rois[level == number]
        if len(here) == 0:
            continue
        features = _filled(values, of_groups, workload.images, height, width)
        grad = _filled(values, workload, len(here), *workload.output_size) if backward else None
        offsets = _offsets(workload, len(here))
        levels.append(LevelTask(features, here, grad, 1 / stride, offsets))
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


def _offsets(workload: Workload, boxes: int) -> NDArray[np.float32] | None:
    """Return normally distributed offsets of all bins, if they move."""
    if not moves_bins(workload.operation):
        return None
    shape = boxes, 2, *workload.output_size
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _filled(
    values: NDArray[Any], workload: Workload, count: int, height: int, width: int
) -> NDArray[Any]:
    shape = (count, workload.channels, height, width)
    if workload.layout == "NHWC":
        shape = (count, height, width, workload.channels)
    return np.resize(values, shape)
