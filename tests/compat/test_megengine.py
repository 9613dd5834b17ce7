"""MegEngine's own rules, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.golden_data import recorded

from roipool.compat import megengine
from roipool.compat.megengine import MegEngineMode

PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
LOWEST = np.finfo(np.float32).min


def test_megengine_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("megengine"):
        inp, rois, grad = (backend.to_device(case[key]) for key in ("inp", "rois", "grad"))
        options: Any = (
            case["mode"].item(),
            case["spatial_scale"].item(),
            case["sample_points"].tolist(),
            case["aligned"].item(),
        )
        pooled = megengine.roi_align(inp, rois, case["output_shape"].tolist(), *options)
        gradient = megengine.roi_align_backward(grad, inp, rois, *options)
        largest = np.abs(case["inp"]).max()
        np.testing.assert_allclose(
            backend.to_host(pooled), case["pooled"], rtol=0, atol=4e-7 * largest
        )
        atol = 2e-6 * np.abs(case["gradient"]).max(initial=0)
        np.testing.assert_allclose(backend.to_host(gradient), case["gradient"], rtol=0, atol=atol)
        values += np.count_nonzero(case["pooled"]) + np.count_nonzero(case["gradient"])
    assert values > 1000


def test_megengine_pools_cells_the_same(backend: Backend) -> None:
    values = reversed_boxes = 0
    for case in recorded("megengine_pooling"):
        inp, rois, grad = (backend.to_device(case[key]) for key in ("inp", "rois", "grad"))
        options: Any = case["mode"].item(), case["scale"].item()
        pooled = megengine.roi_pooling(inp, rois, case["output_shape"].tolist(), *options)
        gradient = megengine.roi_pooling_backward(grad, inp, rois, *options)
        np.testing.assert_allclose(
            backend.to_host(pooled), case["pooled"], rtol=0, atol=4e-7 * np.abs(case["inp"]).max()
        )
        atol = 1e-6 * np.abs(case["gradient"]).max(initial=0)
        np.testing.assert_allclose(backend.to_host(gradient), case["gradient"], rtol=0, atol=atol)
        values += np.count_nonzero(case["pooled"]) + np.count_nonzero(case["gradient"])
        reversed_boxes += np.count_nonzero(case["rois"][:, 3] < case["rois"][:, 1])
    assert values > 1000
    assert reversed_boxes > 3


@pytest.mark.parametrize("mode", ["max", "average"])
def test_a_reversed_box_is_one_cell_without_a_gradient(mode: MegEngineMode) -> None:
    box, grad = [[0, 3, 3, 1, 1]], np.ones((1, 1, 1, 1), np.float32)
    assert megengine.roi_pooling(PROBE, box, 1, mode).item() == PROBE[0, 0, 3, 3]
    assert not megengine.roi_pooling_backward(grad, PROBE, box, mode).any()
    exact = megengine.roi_pooling_backward(grad, PROBE, box, mode, exact_gradient=True)
    assert exact[0, 0, 3, 3] == exact.sum() == 1


def test_a_maximum_of_only_nan_is_the_lowest_float32() -> None:
    nans = np.full((1, 1, 3, 3), np.nan, np.float32)
    assert megengine.roi_pooling(nans, [[0, 0, 0, 1, 1]], 1).item() == LOWEST
    assert np.isnan(megengine.roi_pooling(nans, [[0, 0, 0, 1, 1]], 1, "average")).all()


def test_the_map_fades_over_one_cell(backend: Backend) -> None:
    maps = backend.to_device(np.full((1, 1, 3, 3), 8, np.float32))
    rois = np.array([[0, x, 1, x, 1] for x in (-1, -0.75, 0, 2, 2.5, 3)], np.float32)
    pooled = megengine.roi_align(maps, backend.to_device(rois), 1, sample_points=1, aligned=False)
    assert backend.to_host(pooled).ravel().tolist() == [0, 2, 8, 8, 4, 0]


def test_a_reversed_side_has_no_length(backend: Backend) -> None:
    rois = np.array([[0, 3, 3, 1, 1], [0, 3, 3, 3, 3]], np.float32)
    pooled = megengine.roi_align(backend.to_device(PROBE), backend.to_device(rois), 2)
    found = backend.to_host(pooled)
    np.testing.assert_array_equal(found[0], found[1])
    assert found.any()


@pytest.mark.parametrize(("mode", "expected"), [("average", 0), ("max", LOWEST)])
def test_no_samples_are_not_adaptive(
    backend: Backend, mode: MegEngineMode, expected: float
) -> None:
    arrays = backend.to_device(PROBE), backend.to_device(np.array([[0, 1, 1, 3, 3]], np.float32))
    pooled = megengine.roi_align(*arrays, 2, mode, sample_points=0)
    assert (backend.to_host(pooled) == expected).all()
    grad = backend.to_device(np.ones((1, 1, 2, 2), np.float32))
    gradient = megengine.roi_align_backward(grad, *arrays, mode, sample_points=0)
    assert not backend.to_host(gradient).any()


def test_a_maximum_reads_the_first_cell_from_one_cell_away() -> None:
    """Weight 0 times NaN is NaN, which never wins; farther away there is a 0 instead."""
    nan = np.full((1, 1, 1, 5), np.nan, np.float32)
    for top, expected in ((-0.5, LOWEST), (-0.501, 0)):
        pooled = megengine.roi_align(nan, [[0, 0, top, 4, top]], 1, "max")
        np.testing.assert_array_equal(pooled, np.full((1, 1, 1, 1), expected, np.float32))


def test_zeros_outside_the_map_take_part_in_a_maximum() -> None:
    negative = np.full((1, 1, 3, 3), -2, np.float32)
    box = [[0, 0, 0, 9, 9]]
    assert megengine.roi_align(negative, box, 1, "max", sample_points=(1, 4)).item() == 0
    assert megengine.roi_align(negative, [[0, 0, 0, 1, 1]], 1, "max", aligned=False).item() == -2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: megengine.roi_align(PROBE, [[0, 1, 1, 3, 3]], 2, "avg"), "'average' or 'max'"),
        (
            lambda: megengine.roi_align(PROBE, [[0, 1, 1, 3, 3]], 2, sample_points=-1),
            "sample_points",
        ),
        (lambda: megengine.roi_align(PROBE, [[1, 1, 1, 3, 3]], 2), r"rois\[0, 0\] is 1,"),
        (lambda: megengine.roi_align(PROBE, [[0, 1, 1, 3, 3]], 0), "output_shape must be from 1"),
        (lambda: megengine.roi_pooling(PROBE, [[0, 1, 1, 3, 3]], 2, "avg"), "'average' or 'max'"),
        (
            lambda: megengine.roi_pooling(PROBE, [[0, 1, 1, 3, 3]], 2, scale=np.inf),
            "scale must be finite",
        ),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
