"""The last sample of a crop is on its box's edge; in TensorFlow it is subject to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import Array, every_layout, in_layout, real_dtypes
from _support.compare import assert_close, compute_type
from _support.golden_data import FOLDER

import roipool
from roipool import reference
from roipool._types import Method
from roipool.compat import onnx, roialign_pytorch, tensorflow

# Ends at 1 below; stepping there in float32 rounds to a hair more than the last row's centre.
LOSING = np.array([[0.248046786, 0, 1, 0.471333951]], np.float32)
methods = pytest.mark.parametrize("method", ["bilinear", "nearest"])


def crops_at_the_border(real: type, count: int = 60) -> Iterator[tuple[Array, Array, Any]]:
    """Yield maps, boxes with ends at 0 and 1, some reversed, and crop sizes."""
    rng = np.random.default_rng(6)
    for _ in range(count):
        shape, size = rng.integers(2, 60, 2), tuple(rng.integers(2, 9, 2).tolist())
        boxes = rng.uniform(0, 1, (4, 4))
        boxes[:, 2:] = 1
        boxes[2:] = boxes[2:, [2, 3, 0, 1]]
        boxes[1, :2] = boxes[3, 2:] = 0
        yield rng.integers(-128, 128, (1, 1, *shape)) / 16, boxes.astype(real), size


def recorded() -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield the answers of ONNX Runtime and OpenVINO."""
    with np.load(FOLDER / "pinned_crops.npz") as arrays:
        every = dict(arrays)
    for number in range(32):
        start = f"case{number}_"
        yield number, {k.removeprefix(start): every[k] for k in every if k.startswith(start)}


def test_a_position_just_below_one_half_is_nearest_to_the_first_cell(backend: Backend) -> None:
    below = np.nextafter(np.float32(0.5), np.float32(0))  # with 0.5 added it rounds to 1
    maps = backend.to_device(np.array([0, 1], np.float32).reshape(1, 1, 2, 1))
    boxes = backend.to_device(np.array([[below, 0, 1, 0], [0.5, 0, 1, 0]], np.float32))
    images = backend.to_device(np.zeros(2, int))
    crops = roipool.crop_and_resize(maps, boxes, images, (2, 1), method="nearest")
    assert backend.to_host(crops).ravel().tolist() == [0, 1, 1, 1]


@methods
def test_the_last_row_is_not_lost(backend: Backend, method: str) -> None:
    maps = backend.to_device(np.ones((1, 1, 50, 50), np.float32))
    boxes, images = backend.to_device(LOSING), backend.to_device(np.zeros(1, int))
    crops = roipool.crop_and_resize(maps, boxes, images, 4, method=method)
    np.testing.assert_array_equal(backend.to_host(crops), 1)
    ones = backend.to_device(np.ones((1, 1, 4, 4), np.float32))
    shape = (1, 1, 50, 50)
    back = roipool.crop_and_resize_backward(ones, boxes, images, shape, method=method)
    assert backend.to_host(back).sum() == pytest.approx(16)


@methods
def test_tensorflow_loses_it(method: str) -> None:
    maps, images = np.ones((1, 1, 50, 50), np.float32), [0]
    crop = tensorflow.crop_and_resize(maps.reshape(1, 50, 50, 1), LOSING, images, (4, 4), method)
    np.testing.assert_array_equal(crop[0, :, :, 0], [[1] * 4] * 3 + [[0] * 4])
    grads = np.ones((1, 4, 4, 1), np.float32)
    back = tensorflow.crop_and_resize_backward(grads, LOSING, images, (1, 50, 50, 1), method=method)
    assert back.sum() == pytest.approx(12)
    if method == "bilinear":
        layer = roialign_pytorch.CropAndResize(4, 4)
        np.testing.assert_array_equal(layer(maps, LOSING, images)[0, 0], crop[0, :, :, 0])
        np.testing.assert_array_equal(
            layer.backward(np.ones((1, 1, 4, 4), np.float32), LOSING, images, maps.shape)[0, 0],
            back[0, :, :, 0],
        )


@pytest.mark.parametrize(
    ("name", "outside"),
    [("onnxruntime_bilinear", -7.0), ("onnxruntime_nearest", -7.0), ("openvino_bilinear", 0.0)],
)
def test_crops_as_others_compute_them(backend: Backend, name: str, outside: float) -> None:
    compared = 0
    for _, case in recorded():
        if name not in case:
            continue
        crops = roipool.crop_and_resize(
            *(backend.to_device(case[key]) for key in ("features", "boxes", "images")),
            tuple(case["size"].tolist()),
            method=name.split("_")[1],
            extrapolation_value=outside,
        )
        # Bilinear: these add a + (b - a) * t, which rounds relative to the pixels.
        largest = case["features"].max()
        assert_close(backend.to_host(crops), case[name], 0 if "nearest" in name else largest)
        compared += 1
    assert compared >= 20


@methods
def test_crops_under_the_name_of_onnx_runtime(backend: Backend, method: Method) -> None:
    compared = 0
    for _, case in recorded():
        crops = onnx.CropAndResize(
            *(backend.to_device(case[key]) for key in ("features", "boxes", "images")),
            tuple(case["size"].tolist()),
            mode=method,
            extrapolation_value=-7.0,
        )
        largest = 0 if method == "nearest" else case["features"].max()
        assert_close(backend.to_host(crops), case[f"onnxruntime_{method}"], largest)
        compared += 1
    assert compared >= 20


@real_dtypes
@methods
def test_every_last_cell_is_the_oracles_and_inside(method: str, dtype: Any) -> None:
    real = compute_type(dtype)
    lost = 0
    for maps, boxes, size in crops_at_the_border(real):
        images, values = [0] * len(boxes), maps.astype(dtype)
        options: dict[str, Any] = {"method": method, "extrapolation_value": np.nan}
        got = roipool.crop_and_resize(values, boxes, images, size, **options)
        assert np.isfinite(got).all()
        exact = reference.crop_and_resize(
            maps, boxes, images, size, coordinate_dtype=real, **options
        )
        assert_close(got, exact, 0 if method == "nearest" else np.abs(maps).max())
        theirs = reference.crop_and_resize(
            maps, boxes, images, size, coordinate_dtype=real, pinned=False, **options
        )
        lost += np.isnan(theirs).any()
        if dtype == np.float32:
            nhwc = tensorflow.crop_and_resize(
                np.moveaxis(values, 1, -1), boxes, images, size, method, np.nan
            )
            assert_close(np.moveaxis(nhwc, -1, 1), theirs, np.abs(maps).max())
    assert lost > 0


@every_layout
@real_dtypes
def test_box_gradient_reads_what_the_forward_reads(
    backend: Backend, dtype: Any, layout: str
) -> None:
    real = compute_type(dtype)
    for maps, boxes, size in crops_at_the_border(real, 10):
        grad = np.ones((len(boxes), 1, *size))
        exact = reference.crop_and_resize_backward_boxes(
            grad, maps, boxes, [0] * len(boxes), coordinate_dtype=real
        )
        got = roipool.crop_and_resize_backward_boxes(
            backend.to_device(in_layout(grad.astype(dtype), layout)),
            backend.to_device(in_layout(maps.astype(dtype), layout)),
            backend.to_device(boxes),
            backend.to_device(np.zeros(len(boxes), int)),
            layout=layout,
        )
        terms = 2 * grad[0].sum() * np.abs(maps).max() * (max(maps.shape) - 1)
        assert_close(backend.to_host(got), exact, terms, ulps=1)


def test_box_gradient_of_the_row_that_tensorflow_loses() -> None:
    maps = np.tile(np.arange(50, dtype=np.float32)[:, None], (1, 1, 1, 50))
    inside = LOSING * np.array([1, 1, 1 - 1e-6, 1], np.float32)  # the last row just inside
    grad = np.zeros((1, 1, 4, 4), np.float32)
    grad[:, :, 3] = 1
    by_box = roipool.crop_and_resize_backward_boxes(grad, maps, inside, [0])
    assert by_box[0, 0] == 0  # the last row does not move with the box's start
    assert by_box[0, 2] == pytest.approx(4 * 49)
