"""Simulates the boxes of a detector's region proposal network.

An image contains objects of COCO's sizes, and weaker distractors. The anchors of a feature pyramid
are scored by their overlap with objects, moved towards them, and reduced by non-maximum
suppression, as in detectors. The result has the properties that matter to a pooling operator: most
boxes are small, they form overlapping clusters, and few levels hold nearly all of them. Boxes with
uniformly distributed corners have four times the side, unrealistic aspect ratios, and fill the
coarse levels; a benchmark on them would reward the wrong thing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scene", "iou", "level_of", "scene"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

# Square roots of areas in COCO, at a short side of 480 pixels: log-normal with 41 % of the objects
# below 32 pixels and 75 % below 96.
_OBJECTS = 7.3
_LOG_SIDE = (3.74, 1.2)
_COCO_SHORT_SIDE = 480
_LOG_ASPECT = 0.45
_LOOK_ALIKES = 400

# The anchors of detectron2 and torchvision: one size on each level P2 to P6, three aspect ratios.
_ANCHORS = tuple((2**level, 8 * 2**level) for level in range(2, 7))  # stride, side
_ASPECTS = (0.5, 1.0, 2.0)
_PER_LEVEL = 1000
_NMS = 0.7

# Confidence and accuracy of the simulated network, chosen so that the sides, aspects, levels and
# overlaps are those in tests/benchmarks/test_proposals.py.
_SCORE_NOISE = 0.15
_LOOK_ALIKE_SCORES = (0.2, 0.9)
_REGRESSION = (0.4, 0.9)
_REGRESSION_NOISE = 0.1
_LEAST_IOU = 0.15


@dataclass(frozen=True)
class Scene:
    """An image's objects and the boxes proposed for them.

    Attributes
    ----------
    objects : (M, 4) float64 ndarray
        Rows ``x1, y1, x2, y2`` in pixels.
    proposals : (K, 4) float64 ndarray
        The network's proposals, the best first.
    """

    objects: FloatArray
    proposals: FloatArray


def scene(rng: np.random.Generator, height: int, width: int) -> Scene:
    """Draw the objects of an image and propose boxes for them.

    Parameters
    ----------
    rng : numpy.random.Generator
        The random generator.
    height, width : int
        Size of the image, in pixels.

    Returns
    -------
    Scene
        A scene with about two to three thousand proposals.
    """
    objects = _draw_boxes(rng, max(1, rng.poisson(_OBJECTS)), height, width)
    targets = np.concatenate([objects, _draw_boxes(rng, _LOOK_ALIKES, height, width)])
    strength = rng.uniform(*_LOOK_ALIKE_SCORES, len(targets))
    strength[: len(objects)] = 1
    kept = [
        _propose(rng, targets, strength, stride, side, height, width) for stride, side in _ANCHORS
    ]
    boxes = np.concatenate([boxes for boxes, _ in kept])
    scores = np.concatenate([scores for _, scores in kept])
    return Scene(objects, boxes[np.argsort(-scores, kind="stable")])


def level_of(boxes: FloatArray) -> IntArray:
    """Return the pyramid level, 2 to 5, that each box is pooled from (Lin et al., 2017)."""
    side = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1))
    return np.clip(np.floor(4 + np.log2(side / 224 + 1e-6)), 2, 5).astype(np.intp)


def iou(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the intersection over union of all pairs, shape (len(first), len(second))."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    union: FloatArray = areas[0][:, None] + areas[1] - common
    return common / union


def _draw_boxes(rng: np.random.Generator, count: int, height: int, width: int) -> FloatArray:
    """Draw boxes of COCO's sizes, completely inside the image."""
    scale = min(height, width) / _COCO_SHORT_SIDE
    side = rng.lognormal(*_LOG_SIDE, count) * scale
    stretch = np.exp(rng.normal(0, _LOG_ASPECT / 2, count))
    limit = np.array([width, height], float)
    size = np.clip(np.stack([side * stretch, side / stretch], axis=1), 4, 0.98 * limit)
    low = rng.uniform(size=(count, 2)) * (limit - size)
    return np.concatenate([low, low + size], axis=1)


def _propose(
    rng: np.random.Generator,
    targets: FloatArray,
    strength: FloatArray,
    stride: int,
    side: int,
    height: int,
    width: int,
) -> tuple[FloatArray, FloatArray]:
    """Score the anchors of one level, move the best to their targets, and suppress overlaps."""
    rows, columns = -(-height // stride), -(-width // stride)
    centres = np.arange(columns) * stride, np.arange(rows) * stride
    scores = np.zeros((len(_ASPECTS), rows, columns))
    nearest = np.full(scores.shape, -1)
    for index, aspect in enumerate(_ASPECTS):
        half = side / 2 / np.sqrt(aspect), side / 2 * np.sqrt(aspect)
        for number, target in enumerate(targets):
            _fit(scores[index], nearest[index], number, target, strength[number], centres, half)
    scores += rng.normal(0, _SCORE_NOISE, scores.shape)
    best = np.argsort(-scores, axis=None, kind="stable")[:_PER_LEVEL]
    kind, row, column = np.unravel_index(best, scores.shape)
    stretch = np.sqrt(np.array(_ASPECTS)[kind])
    size = side / 2 * np.stack([1 / stretch, stretch], axis=1)
    centre = np.stack([centres[0][column], centres[1][row]], axis=1)
    anchors = np.concatenate([centre - size, centre + size], axis=1)
    boxes = _regress(rng, anchors, targets, nearest.ravel()[best])
    limit = np.array([width, height, width, height], float)
    boxes = np.clip(boxes, 0, limit)
    whole = np.all(boxes[:, 2:] - boxes[:, :2] >= 1, axis=1)
    boxes, found = boxes[whole], scores.ravel()[best][whole]
    kept = _suppress(boxes)
    return boxes[kept], found[kept]


def _fit(
    scores: FloatArray,
    nearest: IntArray,
    number: int,
    target: FloatArray,
    strength: float,
    centres: tuple[IntArray, IntArray],
    half: tuple[float, float],
) -> None:
    """Raise the scores of the anchors that fit one target, and assign them to it."""
    areas = 4 * half[0] * half[1], (target[2] - target[0]) * (target[3] - target[1])
    if min(areas) < _LEAST_IOU * max(areas):
        return
    # The overlap of axis-aligned boxes is the product of the overlaps along both axes.
    spans, lengths = [], []
    for axis in (0, 1):
        low, high = np.searchsorted(
            centres[axis], (target[axis] - half[axis], target[axis + 2] + half[axis])
        )
        near = centres[axis][low:high]
        reach = np.minimum(near + half[axis], target[axis + 2])
        lengths.append(np.maximum(reach - np.maximum(near - half[axis], target[axis]), 0))
        spans.append(slice(low, high))
    common = lengths[1][:, None] * lengths[0]
    fit = strength * common / (areas[0] + areas[1] - common)
    window = spans[1], spans[0]
    better = fit > np.maximum(scores[window], _LEAST_IOU * strength)
    scores[window][better] = fit[better]
    nearest[window][better] = number


def _regress(
    rng: np.random.Generator, anchors: FloatArray, targets: FloatArray, nearest: IntArray
) -> FloatArray:
    """Move each anchor most of the way to its target, with errors that grow with its size."""
    goal = np.where((nearest >= 0)[:, None], targets[nearest], anchors)
    share = rng.uniform(*_REGRESSION, (len(anchors), 1))
    size = np.tile(anchors[:, 2:] - anchors[:, :2], 2)
    noise = rng.normal(0, _REGRESSION_NOISE, anchors.shape) * size
    moved: FloatArray = anchors + share * (goal - anchors) + noise
    return moved


def _suppress(boxes: FloatArray) -> IntArray:
    """Apply non-maximum suppression to boxes, of which the best come first."""
    overlapping = np.triu(iou(boxes, boxes) > _NMS, 1)
    kept = np.ones(len(boxes), bool)
    for index in range(len(boxes)):
        if kept[index]:
            kept &= ~overlapping[index]
    return np.flatnonzero(kept)
