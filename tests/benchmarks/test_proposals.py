"""The harness's boxes have the statistics of a region proposal network's."""

from __future__ import annotations

import numpy as np
import pytest
from harness.proposals import iou, level_of, scene

HEIGHT, WIDTH = 800, 1333

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_statistics_of_the_best_thousand(seed: int) -> None:
    boxes = scene(np.random.default_rng(seed), HEIGHT, WIDTH).proposals[:1000]
    assert boxes.shape == (1000, 4)
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    sides = np.percentile(np.sqrt(width * height), [10, 50, 90])
    assert np.all(sides >= [26, 56, 135])
    assert np.all(sides <= [38, 78, 290])
    aspects = np.percentile(height / width, [10, 50, 90])
    np.testing.assert_allclose(aspects, [0.5, 1.0, 1.85], atol=0.15)
    levels = np.bincount(level_of(boxes), minlength=6)[2:] / len(boxes)
    assert np.all(levels >= [0.65, 0.15, 0.04, 0.01])
    assert np.all(levels <= [0.80, 0.25, 0.13, 0.03])
    overlapping = (iou(boxes, boxes) > 0).sum() - len(boxes)
    assert 0.055 < overlapping / (1000 * 999) < 0.09


@pytest.mark.parametrize("size", [(600, 800), (128, 128)])
def test_boxes_lie_in_the_image_and_repeat_with_the_seed(size: tuple[int, int]) -> None:
    first, again, other = (scene(np.random.default_rng(seed), *size) for seed in (5, 5, 6))
    assert np.array_equal(first.proposals, again.proposals)
    assert not np.array_equal(first.proposals[:10], other.proposals[:10])
    for boxes in (first.proposals, first.objects):
        assert len(boxes) > 0
        assert np.all(boxes[:, :2] >= 0)
        assert np.all(boxes[:, 2:] <= [size[1], size[0]])
        assert np.all(boxes[:, 2:] > boxes[:, :2])


def test_objects_attract_proposals() -> None:
    drawn = scene(np.random.default_rng(0), HEIGHT, WIDTH)
    found = iou(drawn.proposals[:1000], drawn.objects).max(axis=0)
    assert np.mean(found > 0.6) > 0.8


def test_iou_and_levels_by_hand() -> None:
    boxes = np.array([[0, 0, 4, 4], [2, 0, 6, 4], [4, 4, 5, 5]], float)
    np.testing.assert_allclose(iou(boxes[:1], boxes), [[1, 8 / 24, 0]])
    squares = np.array([[0, 0, side, side] for side in (1, 111, 112, 223, 224, 448, 5000)], float)
    assert level_of(squares).tolist() == [2, 2, 3, 3, 4, 5, 5]
