"""ROI align of rotated boxes, against roi_align and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend

import roipool

nan, inf = math.nan, math.inf


# ---- Values


@pytest.mark.parametrize("angle", [0.0, 2 * math.pi, -4 * math.pi])
@pytest.mark.parametrize("sampling", [0, 2])
def test_without_an_angle_it_is_roi_align(backend: Backend, sampling: int, angle: float) -> None:
    rng = np.random.default_rng(0)
    maps = backend.to_device(rng.normal(size=(2, 3, 20, 30)))
    low, sides = rng.uniform(-5, 25, (40, 2)), rng.uniform(0, 20, (40, 2))
    images = rng.integers(0, 2, (40, 1))
    corners = np.hstack([images, low, low + sides])
    rotated = np.hstack([images, low + sides / 2, sides, np.full((40, 1), angle)])
    got = roipool.roi_align_rotated(maps, backend.to_device(rotated), 7, 0.5, sampling)
    expected = roipool.roi_align(maps, backend.to_device(corners), 7, 0.5, sampling)
    got, expected = backend.to_host(got), backend.to_host(expected)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("place", "inside"), [(-1, 1), (5, 1), (-1.000001, 0), (5.000001, 0)])
def test_samples_one_cell_beyond_the_map_are_inside(
    backend: Backend, place: float, inside: int, aligned: bool
) -> None:
    half = 0.5 * aligned
    beyond, middle = place + half, 2 + half
    rois = np.array([[0, beyond, middle, 1, 1, 0], [0, middle, beyond, 1, 1, 0]])
    maps = backend.to_device(np.ones((1, 1, 5, 5), np.float32))
    pooled = roipool.roi_align_rotated(maps, backend.to_device(rois), 1, 1.0, 1, aligned=aligned)
    assert backend.to_host(pooled).ravel().tolist() == [inside, inside]


@pytest.mark.parametrize("side", [50.0, 1e6, 1e8])
@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_boxes_of_any_size_cost_no_more_than_the_map(
    backend: Backend, quarters: int, side: float
) -> None:
    # A quarter turn of the box is a quarter turn of the map.
    maps = np.random.default_rng(1).normal(size=(1, 2, 12, 12))
    box = [[0, 6, 6, side, side, quarters * math.pi / 2]]
    got = roipool.roi_align_rotated(backend.to_device(maps), backend.to_device(np.array(box)), 3)
    turned = np.ascontiguousarray(np.rot90(maps, -quarters, (2, 3)))
    half = side / 2
    expected = roipool.roi_align(turned, [[0, 6 - half, 6 - half, 6 + half, 6 + half]], 3)
    np.testing.assert_allclose(backend.to_host(got), expected, rtol=1e-9, atol=1e-12)


def test_nan_spreads_to_the_bins_that_read_it_only() -> None:
    maps = np.zeros((1, 1, 9, 9), np.float32)
    maps[0, 0, 4, 4] = nan
    rois = [[0, 4.5, 4.5, 6, 6, 0.4], [0, 4.5, 4.5, 6, 6, math.pi / 2]]
    got = np.isnan(roipool.roi_align_rotated(maps, rois, 3, sampling_ratio=2)[:, 0])
    assert got[:, 1, 1].all()
    assert not got[:, [0, 0, 2, 2], [0, 2, 0, 2]].any()


# ---- Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rois": np.zeros((1, 5))}, "without it rois must have shape"),
        ({"rois": np.zeros((1, 4))}, r"rois must have shape \(K, 6\) or \(K, 5\)"),
        ({"angle_unit": "turns"}, "angle_unit must be 'radians' or 'degrees'"),
        ({"output_size": (65536, 65536)}, "output_size has 65536 x 65536 bins"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "features": np.zeros((1, 1, 4, 4)),
        "rois": np.zeros((1, 6)),
        "output_size": 2,
    }
    with pytest.raises(ValueError, match=message):
        roipool.roi_align_rotated(**{**arguments, **change})


def test_maps_with_too_many_cells() -> None:
    gradient, rois = np.zeros((0, 1, 1, 1), np.float32), np.zeros((0, 6))
    with pytest.raises(ValueError, match="input_shape has 65536 x 65536 cells"):
        roipool.roi_align_rotated_backward(gradient, rois, (1, 1, 65536, 65536))
