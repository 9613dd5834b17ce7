"""Antialiased crops: as Pillow and torchvision resize; what the shared tests do not say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import Array, every_layout, in_layout, real_dtypes
from _support.compare import assert_close, assert_same_bits
from _support.golden_data import FOLDER

import roipool

RNG = np.random.default_rng(0)
MAPS = RNG.normal(size=(2, 3, 31, 40))
IMAGES = [0, 1, 0, 1]
# No cell is at the foot of a triangle, where a derivative has a kink.
SMALLER = np.array(
    [[0.1131, 0.2, 0.93, 0.87], [0.8972, 0.12, 0.1321, 0.71], [-0.3, 0.1012, 1.2137, 0.92]]
)
FLAT = np.array([[0.3, 0.22, 0.3, 0.91]])
BOXES = np.vstack([SMALLER, FLAT])
# Error of float32 positions, on pictures of up to 60 cells and 256 colours.
FLOAT32 = 0.004


def crop(maps: Any, boxes: Any, images: Any, size: Any, **more: Any) -> Any:
    return roipool.crop_and_resize(maps, boxes, images, size, antialias=True, **more)


def resize(picture: Array, box: Array, size: Any) -> Array:
    """Resize a box of one picture as others do, held at the border of the picture."""
    boxes = fractions(box, size, picture.shape)
    return crop(picture[None, None], boxes, [0], size, border="edge")[0, 0]


def fractions(box: Array, size: tuple[int, int], shape: tuple[int, ...]) -> Array:
    """Return y1, x1, y2, x2 of the crop that others name by the edges of its pixels."""
    low, high = box[[1, 0]], box[[3, 2]]
    half = (high - low) / np.array(size) / 2
    last = np.maximum(np.array(shape) - 1, 1)  # any position on one cell is that cell
    return np.concatenate([(low + half - 0.5) / last, (high - half - 0.5) / last])[None]


def recorded() -> Iterator[dict[str, Array]]:
    """Yield the cases of the goldens; the last 16 are at the border, and made larger."""
    with np.load(FOLDER / "antialias.npz") as arrays:
        every = dict(arrays)
    for number in range(40):
        start = f"case{number}_"
        yield {k.removeprefix(start): every[k] for k in every if k.startswith(start)}


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8])
def test_crops_as_pillow_resizes(kind: type) -> None:
    compared = 0
    for case in recorded():
        picture, answer = case["picture"], case["pillow_float"]
        pooled = resize(picture.astype(kind), case["box"], answer.shape)
        if kind is np.float64:
            assert_close(answer, pooled, 255, roundings=2)
        else:
            np.testing.assert_allclose(pooled, answer, rtol=0, atol=FLOAT32)
        # Pillow rounds pictures of bytes twice, after rows and after columns.
        assert np.abs(pooled - case["pillow"]).max() <= 1.01
        compared += 1
    assert compared == 40


def test_crops_as_pillow_resizes_on_a_gpu(backend: Backend) -> None:
    for case in recorded():
        picture, answer = case["picture"].astype(np.float32), case["pillow_float"]
        boxes = fractions(case["box"], answer.shape, picture.shape)
        given = (backend.to_device(each) for each in (picture[None, None], boxes, np.zeros(1, int)))
        pooled = backend.to_host(crop(*given, answer.shape, border="edge"))[0, 0]
        np.testing.assert_allclose(pooled, answer, rtol=0, atol=FLOAT32)


def test_crops_as_torchvision_resizes() -> None:
    compared = 0
    for case in recorded():
        if "torchvision_double" not in case:
            continue
        x1, y1, x2, y2 = case["box"].astype(int)
        cut = case["picture"][y1:y2, x1:x2]  # before torchvision resizes, which reads no more
        answer = case["torchvision_double"]
        box = np.array([0, 0, x2 - x1, y2 - y1])
        pooled = resize(cut.astype(np.float64), box, answer.shape)
        np.testing.assert_allclose(pooled, answer, rtol=0, atol=1e-11)
        assert np.abs(pooled - case["torchvision_byte"]).max() <= 1.01
        compared += 1
    assert compared == 28


def test_a_crop_made_larger_has_no_frame() -> None:
    picture = np.full((20, 30), 200, np.uint8)
    for box in ([0, 0, 8, 8], [22, 12, 30, 20], [0, 0, 30, 20]):
        boxes = fractions(np.array(box), (64, 64), picture.shape)
        given = (picture[None, None], boxes, [0], 64)
        for method, antialias in (("bilinear", True), ("bilinear", False), ("nearest", False)):
            options = {"method": method, "antialias": antialias, "border": "edge"}
            assert (roipool.crop_and_resize(*given, **options) == 200).all()
        framed = crop(*given, extrapolation_value=-1)[0, 0] == -1
        assert framed.any(axis=0).sum() >= 1  # as TensorFlow has it, without `border`
        assert framed.any(axis=1).sum() >= 1


def test_cells_far_outside_are_those_at_the_edge() -> None:
    ramp = np.arange(5.0).reshape(1, 1, 1, 5)
    for antialias, outer in ((False, [0, 4]), (True, [0, 4])):
        crops = roipool.crop_and_resize(
            ramp, [[0, -9, 0, 10]], [0], (1, 4), antialias=antialias, border="edge"
        )
        assert crops[0, 0, 0, [0, -1]].tolist() == outer
    # A triangle 6 wide around -2 covers cells 0 to 3, with heights 4, 3, 2 and 1.
    reaching = crop(ramp, [[0, -0.5, 0, 1]], [0], (1, 2), border="edge")
    assert reaching[0, 0, 0, 0] == pytest.approx((3 * 1 + 2 * 2 + 1 * 3) / 10)


@pytest.mark.parametrize("end", [np.nan, np.inf, -np.inf])
def test_positions_that_are_not_finite_are_filled(end: float) -> None:
    for antialias in (False, True):
        crops = roipool.crop_and_resize(
            MAPS,
            [[0, 0, end, 1]],
            [0],
            3,
            antialias=antialias,
            border="edge",
            extrapolation_value=-7,
        )
        assert (crops[:, :, 1:] == -7).all()


@real_dtypes
@every_layout
def test_an_axis_that_is_not_made_smaller_is_interpolated(dtype: str, layout: str) -> None:
    maps = in_layout(MAPS, layout).astype(dtype)
    for size in (60, (60, 1), (1, 60)):
        boxes = BOXES.copy()
        if size == (60, 1):
            boxes[:, 3] = boxes[:, 1]
        if size == (1, 60):
            boxes[:, 2] = boxes[:, 0]
        plain = roipool.crop_and_resize(maps, boxes, IMAGES, size, layout=layout)
        assert_same_bits(crop(maps, boxes, IMAGES, size, layout=layout), plain)


@real_dtypes
def test_a_constant_map_stays_constant(dtype: str) -> None:
    maps = np.full((1, 1, 50, 70), 3.25, dtype)
    boxes = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [-5, -1e3, 6, 1e3], [-1e9, -1e20, 1e9, 1e20]])
    pooled = crop(maps, boxes, [0] * 4, (3, 5))
    inside = pooled != 0
    assert inside[:2].all()
    assert inside[2:].sum((1, 2, 3)).tolist() == [1, 1]  # the middle: others are outside the map
    np.testing.assert_allclose(pooled[inside], 3.25, rtol=16 * np.finfo(dtype).eps)


def test_weights_are_a_triangle() -> None:
    cells = np.eye(9).reshape(1, 9, 1, 9)
    weights = crop(cells, [[0, 0, 0, 1]], [0], (1, 3))[0, :, 0].T
    middle = np.array([0, 1, 2, 3, 4, 3, 2, 1, 0])
    first = np.array([4, 3, 2, 1, 0, 0, 0, 0, 0])
    expected = [first / 10, middle / 16, first[::-1] / 10]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("size", [(4, 5), (1, 3), (3, 1), (2, 70)])
def test_the_gradient_of_boxes_is_the_derivative(size: tuple[int, int]) -> None:
    grad, images = np.random.default_rng(1).normal(size=(3, 3, *size)), IMAGES[:3]
    for border in ("constant", "edge"):
        options = {"antialias": True, "border": border}
        found = roipool.crop_and_resize_backward_boxes(grad, MAPS, SMALLER, images, **options)
        step, expected = 1e-6, np.zeros((3, 4))
        for column, moved in enumerate(step * np.eye(4)):
            ends = [
                roipool.crop_and_resize(MAPS, SMALLER + sign * moved, images, size, **options)
                for sign in (1, -1)
            ]
            expected[:, column] = ((ends[0] - ends[1]) * grad).sum(axis=(1, 2, 3)) / (2 * step)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_nearest_crops_have_no_filter() -> None:
    with pytest.raises(ValueError, match="antialias must be False with method='nearest', got True"):
        crop(MAPS, BOXES, IMAGES, 3, method="nearest")
    with pytest.raises(ValueError, match="antialias must be False"):
        roipool.crop_and_resize_backward(
            np.ones((4, 3, 2, 2)), BOXES, IMAGES, MAPS.shape, method="nearest", antialias=True
        )
