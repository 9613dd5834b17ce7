"""Paddle's own rules: the counts of boxes, and boxes whose grid has no samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend

from roipool.compat import paddle

MAPS = np.arange(1, 51, dtype=np.float32).reshape(2, 1, 5, 5)
BOXES = np.array([[1, 1, 3, 3]], np.float32)
FLAT = {"flat": (1, 2, 3, 2), "narrow": (2, 1, 2, 3), "reversed": (3, 1, 1, 3)}


@pytest.mark.parametrize("box", FLAT.values(), ids=FLAT)
def test_an_adaptive_average_without_samples_is_nan_if_aligned(
    backend: Backend, box: tuple[float, ...]
) -> None:
    def pooled(**options: Any) -> Any:
        maps, boxes = (
            backend.to_device(array) for array in (MAPS, np.array([box, BOXES[0]], np.float32))
        )
        counts = backend.to_device(np.array([2, 0]))
        return backend.to_host(paddle.roi_align(maps, boxes, counts, 2, **options))

    own, other = pooled()
    assert np.isnan(own).all()
    assert not np.isnan(other).any()
    assert not np.isnan(pooled(sampling_ratio=2)).any()
    assert not np.isnan(pooled(aligned=False)).any()  # sides are held at one cell


COUNTED: dict[str, Callable[[Any], Any]] = {
    "align": lambda counts: paddle.roi_align(MAPS, BOXES, counts, 2),
    "align backward": lambda counts: paddle.roi_align_backward(
        MAPS[:1, :, :2, :2], BOXES, counts, MAPS.shape
    ),
    "pool": lambda counts: paddle.roi_pool(MAPS, BOXES, counts, 2),
    "ps": lambda counts: paddle.psroi_pool(MAPS, BOXES, counts, 1),
    "levels": lambda counts: paddle.distribute_fpn_proposals(BOXES, 2, 5, 4, 224, rois_num=counts),
}


@pytest.mark.parametrize("call", COUNTED.values(), ids=COUNTED)
@pytest.mark.parametrize(
    "counts",
    [
        [2, -1],
        [-1, 2],
        [0, 0],
        [1, 1],
        [2**63 - 1, 2**63 - 1],
        np.array([2**64 - 1, 2], np.uint64),
        np.array([2**63, 2**63 + 1], np.uint64),
        np.array([255, 2], np.uint8),
        np.array([127, 127], np.int8),
    ],
    ids=str,
)
def test_counts_that_are_not_those_of_the_boxes(call: Callable[[Any], Any], counts: Any) -> None:
    with pytest.raises(ValueError, match="must not be negative, and add up to the 1 boxes, got"):
        call(counts)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64])
def test_counts_of_every_type_number_the_images(kind: Any) -> None:
    pooled = paddle.roi_align(MAPS, BOXES, np.array([0, 1], kind), 2)
    assert pooled.ravel().tolist() == [32, 33, 37, 38]  # of the second map


def test_counts_whose_sum_overflows_to_the_number_of_boxes() -> None:
    maps = np.concatenate([MAPS, MAPS[:1]])
    for counts in ([2**63 - 1, 2**63 - 1, 3], np.array([2**64 - 1, 2, 0], np.uint64)):
        with pytest.raises(ValueError, match="boxes_num must not be negative, and add up"):
            paddle.roi_align(maps, BOXES, counts, 2)
        with pytest.raises(ValueError, match="rois_num must not be negative, and add up"):
            paddle.distribute_fpn_proposals(BOXES, 2, 5, 4, 224, rois_num=counts)


@pytest.mark.parametrize("box", [(0, 0, -0.5, 1e6), (0, 0, 1e6, -0.5), (0, 0, -9, -9)])
@pytest.mark.parametrize("pixel_offset", [False, True])
def test_a_reversed_box_has_no_area_with_a_pixel_more_either(
    box: tuple[float, ...], pixel_offset: bool
) -> None:
    rois, *_ = paddle.distribute_fpn_proposals([box], 2, 5, 4, 0.25, pixel_offset)
    assert [len(one) for one in rois] == [1, 0, 0, 0]
    flat = [(0.0, 0, 0, 0)]
    rois, *_ = paddle.distribute_fpn_proposals(flat, 2, 5, 4, 0.25, pixel_offset)
    assert [len(one) for one in rois] == ([0, 0, 0, 1] if pixel_offset else [1, 0, 0, 0])
