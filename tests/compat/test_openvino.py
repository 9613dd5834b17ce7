"""OpenVINO's own rules: modes, empty grids, the end of a list of boxes, and exact edges of bins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend

import roipool
from roipool.compat import openvino
from roipool.compat._openvino_pooling import Method, PSMode
from roipool.compat.openvino import AlignedMode

RNG = np.random.default_rng(0)
MAPS = RNG.standard_normal((2, 3, 6, 7)).astype(np.float32)
LISTED = np.array(
    [[0, 1, 1, 4, 4], [1, 0.5, 2, 5, 5], [-1, 0, 0, 3, 3], [0, 1, 1, 4, 4]], np.float32
)
FLAT = np.array([[2, 1, 2, 3]], np.float32)
NEGATIVE = np.full((1, 1, 4, 4), -2, np.float32)
PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)


@pytest.mark.parametrize("method", ["max", "bilinear"])
def test_a_batch_index_of_minus_1_ends_the_list(backend: Backend, method: Method) -> None:
    coords = LISTED.copy()
    if method == "bilinear":
        coords[:, 1:] /= 6
    maps, boxes = backend.to_device(MAPS), backend.to_device(coords)
    pooled = backend.to_host(openvino.ROIPooling(maps, boxes, (2, 3), 1.0, method))
    assert pooled[:2].all()
    assert not pooled[2:].any()
    grad = backend.to_device(np.ones(pooled.shape, np.float32))
    by_all = openvino.ROIPooling_backward(grad, maps, boxes, 1.0, method)
    by_first = openvino.ROIPooling_backward(grad[:2], maps, boxes[:2], 1.0, method)
    np.testing.assert_array_equal(backend.to_host(by_all), backend.to_host(by_first))


@pytest.mark.parametrize(
    ("index", "ends"), [(-0.5, False), (-1, True), (-1.5, True), (-1.99, True)]
)
def test_the_index_that_ends_the_list_is_cut_to_a_whole_number(index: float, ends: bool) -> None:
    coords = LISTED[:2].copy()
    coords[1, 0] = index
    pooled = openvino.ROIPooling(MAPS, coords, (2, 2), 1.0, "max")
    assert pooled[1].any() != ends
    average = openvino.PSROIPooling(MAPS[:, :1], coords, 1, 1, 1.0)
    assert average[1].any() != ends


PARTS = {"average": (2, 2, 1.0), "bilinear": (2, 2, 0.1, 3, 2)}  # of PSROIPooling


@pytest.mark.parametrize("mode", PARTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_position_sensitive_gradients_are_transposes(
    backend: Backend, mode: PSMode, dtype: type
) -> None:
    channels = {"average": 2 * 4, "bilinear": 2 * 6}[mode]
    maps = RNG.standard_normal((2, channels, 6, 7)).astype(dtype)
    grad = RNG.standard_normal((4, 2, 2, 2)).astype(dtype)
    maps_there, grad_there, boxes = map(backend.to_device, (maps, grad, LISTED))
    pooled = openvino.PSROIPooling(maps_there, boxes, *PARTS[mode], mode=mode)
    pooled = backend.to_host(pooled).astype(np.float64)
    assert pooled[:2].all()
    assert not pooled[2:].any()  # -1 ends the list
    gradient = openvino.PSROIPooling_backward(
        grad_there, boxes, maps.shape, *PARTS[mode], mode=mode
    )
    gradient = backend.to_host(gradient)
    assert gradient.dtype == dtype
    both = (pooled * grad).sum(), (gradient * maps.astype(np.float64)).sum()
    assert both[0] == pytest.approx(both[1], rel=1e-2 if dtype is np.float16 else 1e-5)


def test_a_mean_of_crops_is_not_rounded_between() -> None:
    maps = np.array([1, 1 + 2**-10, 1], np.float16).reshape(1, 3, 1, 1)
    pooled = openvino.PSROIPooling(maps, [[0, 0, 0, 1, 1]], 1, 1, 1.0, 3, 1, "bilinear")
    assert pooled.item() == np.float16(1 + 2**-10 / 3)


def test_a_last_pixel_is_rounded_after_one_is_added() -> None:
    """R-FCN's rule ends at the first pixel here: round(-0.5) + 1 = 0, but round(0.5) = 1."""
    maps = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    box = [[0, -0.5, -0.5, -0.5, -0.5]]
    assert openvino.PSROIPooling(maps, box, 1, 2, 1.0).ravel().tolist() == [0, 0, 0, 76]
    assert not roipool.ps_roi_pool(maps, box, 2).any()


@pytest.mark.parametrize("index", [2, -2, np.nan])
def test_other_images_must_exist(index: float) -> None:
    coords = LISTED[:2].copy()
    coords[1, 0] = index
    with pytest.raises(ValueError, match=r"coords\[1, 0\] is .*the batch holds 2 images"):
        openvino.ROIPooling(MAPS, coords, (2, 2), 1.0)


def test_nothing_after_the_end_of_the_list_is_checked() -> None:
    coords = LISTED.copy()
    coords[3, 0] = 9
    assert not openvino.ROIPooling(MAPS, coords, (2, 2), 1.0)[2:].any()


def test_a_maximum_starts_at_0(backend: Backend) -> None:
    maps, rois = backend.to_device(NEGATIVE), backend.to_device(np.ones((1, 4), np.float32))
    images, grad = backend.to_device(np.zeros(1, int)), np.ones((1, 1, 2, 2), np.float32)
    options = (2, 1.0, "max", "half_pixel")
    pooled = openvino.ROIAlign(maps, rois, images, 2, 2, *options)  # type: ignore[arg-type]
    assert not backend.to_host(pooled).any()
    gradient = openvino.ROIAlign_backward(
        backend.to_device(grad),
        maps,
        rois,
        images,
        *options,  # type: ignore[arg-type]
    )
    assert not backend.to_host(gradient).any()


def test_the_gradient_of_a_maximum_goes_to_its_sample() -> None:
    grad = np.ones((1, 1, 1, 1), np.float32)
    gradient = openvino.ROIAlign_backward(grad, PROBE, [[1, 1, 3, 3]], [0], 2, 1.0, "max")
    assert np.argwhere(gradient[0, 0]).tolist() == [[2, 2], [2, 3], [3, 2], [3, 3]]
    assert gradient.sum() == 1


def test_an_average_without_samples_is_nan(backend: Backend) -> None:
    maps, rois = backend.to_device(PROBE), backend.to_device(FLAT)
    images = backend.to_device(np.zeros(1, int))

    def pooled(mode: Any, aligned_mode: AlignedMode, sampling_ratio: int = 0) -> Any:
        options = (2, 2, sampling_ratio, 1.0, mode, aligned_mode)
        return backend.to_host(openvino.ROIAlign(maps, rois, images, *options))

    assert np.isnan(pooled("avg", "half_pixel")).all()
    assert not pooled("max", "half_pixel").any()
    assert pooled("avg", "half_pixel", 1).all()
    assert pooled("avg", "asymmetric").all()  # at least one cell long


def test_half_pixel_shifts_boxes_before_they_are_scaled(backend: Backend) -> None:
    maps, images = backend.to_device(MAPS), backend.to_device(np.array([0, 1]))
    options = (2, 3, 2, 0.25, "avg")
    rois = backend.to_device(LISTED[:2, 1:] * 4)
    moved = backend.to_device(LISTED[:2, 1:] * 4 + np.float32(0.5))
    found = openvino.ROIAlign(maps, rois, images, *options, "half_pixel")  # type: ignore[arg-type]
    same = openvino.ROIAlign(
        maps,
        moved,
        images,
        *options,  # type: ignore[arg-type]
        "half_pixel_for_nn",
    )
    np.testing.assert_array_equal(backend.to_host(found), backend.to_host(same))


def test_edges_of_bins_are_exact(backend: Backend) -> None:
    """As numbers of float32, 57 / 7 times 7 is more than 57."""
    row = backend.to_device(np.arange(60, dtype=np.float32).reshape(1, 1, 1, 60))
    box = backend.to_device(np.array([[0, 0, 0, 56, 0]], np.float32))
    ends = backend.to_host(openvino.ROIPooling(row, box, (1, 7), 1.0)).ravel()
    assert ends.tolist() == [-(-(p + 1) * 57 // 7) - 1 for p in range(7)]
    assert backend.to_host(roipool.roi_pool(row, box, (1, 7))).ravel()[-1] == 57


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: openvino.ROIAlign(PROBE, FLAT, [0], 2, 2, 2, 1.0, "sum"), "'avg' or 'max'"),
        (
            lambda: openvino.ROIAlign(PROBE, FLAT, [0], 2, 2, 2, 1.0, "avg", "half"),
            "aligned_mode must be 'asymmetric' or 'half_pixel_for_nn' or 'half_pixel'",
        ),
        (lambda: openvino.ROIAlign(PROBE, FLAT, [0], 2, 2, -1, 1.0, "avg"), "sampling_ratio"),
        (lambda: openvino.ROIAlign(PROBE, FLAT, [1], 2, 2, 2, 1.0, "avg"), "batch_indices"),
        (lambda: openvino.ROIAlign(PROBE, FLAT, [0], 0, 2, 2, 1.0, "avg"), "pooled_h and pooled"),
        (lambda: openvino.ROIAlign(PROBE, FLAT, [0], 2, 2, 2, np.inf, "avg"), "spatial_scale"),
        (
            lambda: openvino.ROIPooling(PROBE, LISTED[:1], (2, 2), 1.0, "avg"),
            "method must be 'max' or 'bilinear'",
        ),
        (lambda: openvino.PSROIPooling(PROBE, LISTED[:1], 1, 2, 1.0), "input must have a multi"),
        (lambda: openvino.PSROIPooling(PROBE, LISTED[:1], 2, 1, 1.0), "output_dim must be 1"),
        (
            lambda: openvino.PSROIPooling(PROBE, LISTED[:1], 1, 1, 1.0, 0, 1, "bilinear"),
            "spatial_bins_x must be from 1",
        ),
        (
            lambda: openvino.PSROIPooling(PROBE, LISTED[:1], 1, 1, 1.0, mode="max"),
            "mode must be 'average' or 'bilinear'",
        ),
        (lambda: openvino.ROIPooling(PROBE, FLAT, (2, 2), 1.0), r"coords must have shape \(K, 5"),
        (
            lambda: openvino.ROIAlignRotated(PROBE, FLAT, [0], 2, 2, 2, 1.0, False),
            r"rois must have shape \(K, 5\)",
        ),
        (
            lambda: openvino.ROIAlignRotated(PROBE, LISTED[:1], [0], 2, 2, 2, 1.0, 2),
            "clockwise_mode must be a bool",
        ),
    ],
)
def test_bad_input_names_the_argument(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
