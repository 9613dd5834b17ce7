"""The model garden's multilevel crop: its answers, and its own rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import Array, Arrays, recorded

from roipool.compat import model_garden

FINE = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
PYRAMID = {"4": FINE, "5": np.full((1, 2, 2, 1), 50, np.float32)}
BOXES = np.array([[[0, 0, 32, 32], [8, 8, 40, 60]]], np.float32)
GRAD = np.ones((1, 2, 2, 2, 1), np.float32)


def by_level(case: Arrays, name: str) -> Arrays:
    return {key.removeprefix(name): case[key] for key in case if key.startswith(name)}


@thorough_on_the_emulator
def test_the_model_garden_answers_the_same(backend: Backend) -> None:
    """Far behind the map the original's weights cancel, with a rounding of each distance."""
    values = fractions = 0
    for case in recorded("model_garden"):
        maps, offset = by_level(case, "features"), case["sample_offset"].item()
        features = {level: backend.to_device(one) for level, one in maps.items()}
        boxes, grad = backend.to_device(case["boxes"]), backend.to_device(case["grad"])
        shapes = {level: one.shape for level, one in maps.items()}
        cells = np.abs(case["boxes"]) / 2 ** int(min(maps))
        distance = (1 + cells.reshape(*cells.shape[:2], 2, 2).max(axis=2)).prod(axis=2)
        pooled = model_garden.multilevel_crop_and_resize(
            features, boxes, case["output_size"].item(), offset
        )
        check(backend.to_host(pooled), case["pooled"], 1e-6 * distance[:, :, None, None, None])
        found = model_garden.multilevel_crop_and_resize_backward(grad, boxes, shapes, offset)
        expected, largest = by_level(case, "gradient"), np.abs(case["grad"]).max()
        for level, gradient in found.items():
            check(backend.to_host(gradient), expected[level], 1e-6 * distance.max() * largest)
        by_boxes = model_garden.multilevel_crop_and_resize_backward_boxes(
            grad, features, boxes, offset
        )
        check(backend.to_host(by_boxes), case["box_gradient"], 1e-6 * distance[:, :, None])
        values += pooled.size
        fractions += any(size % 2 for size in maps[min(maps)].shape[1:3])
    assert values > 1000
    assert fractions > 5


def check(found: Array, expected: Array, allowed: Any) -> None:
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= allowed).all()


def test_values_ahead_of_the_map_are_extrapolated_and_behind_it_held() -> None:
    line = np.array([2, 3, 5], np.float32).reshape(1, 1, 3, 1)
    points = [[[0, x, 0, x] for x in (-2, -0.5, 0, 1.5, 2, 9)]]
    pooled = model_garden.multilevel_crop_and_resize({"0": line}, points, 1)
    assert pooled.ravel().tolist() == [0, 1.5, 2, 4, 5, 5]


def test_a_fractional_last_cell_is_cut() -> None:
    """Only as many cells of the second map are read as half of the first has."""
    features = {"0": np.zeros((1, 5, 5, 1)), "1": np.arange(9.0).reshape(1, 3, 3, 1)}
    pooled = model_garden.multilevel_crop_and_resize(features, [[[0, 0, 99, 99]]], 1)
    assert pooled.item() == 4.0
    shapes = {level: one.shape for level, one in features.items()}
    grad = np.ones((1, 1, 1, 1, 1))
    found = model_garden.multilevel_crop_and_resize_backward(grad, [[[0, 0, 99, 99]]], shapes)
    assert found["1"].ravel().tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert not found["0"].any()


def test_the_box_gradient_is_the_slope() -> None:
    rng = np.random.default_rng(2)
    features = {"2": rng.normal(size=(2, 9, 7, 3)), "3": rng.normal(size=(2, 5, 4, 3))}
    boxes = rng.uniform(-4, 30, (2, 4, 4))
    grad = rng.normal(size=(2, 4, 3, 2, 3))
    found = model_garden.multilevel_crop_and_resize_backward_boxes(grad, features, boxes, 0.3)
    for index in np.ndindex(boxes.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = boxes.copy()
            moved[index] += step
            pooled = model_garden.multilevel_crop_and_resize(features, moved, (3, 2), 0.3)
            ends.append((pooled * grad).sum())
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(found[index], abs=1e-6)


def test_boxes_with_batch_indices_have_one_row_each() -> None:
    features = {level: np.concatenate([one, one + 100]) for level, one in PYRAMID.items()}
    boxes = np.concatenate([BOXES, BOXES[:, ::-1]])
    per_image = model_garden.multilevel_crop_and_resize(features, boxes, 2)
    indices = np.array([1, 0, 1, 0])
    rows = np.concatenate([boxes[1, :1], boxes[0, 1:], boxes[1, 1:], boxes[0, :1]])
    pooled = model_garden.multilevel_crop_and_resize(features, rows, 2, batch_indices=indices)
    expected = per_image[indices, [0, 1, 1, 0]]
    np.testing.assert_array_equal(pooled, expected)


def test_the_layer_has_the_functions_results() -> None:
    layer = model_garden.MultilevelROIAligner(2, 0.25)
    assert repr(layer) == "MultilevelROIAligner(crop_size=2, sample_offset=0.25)"
    pooled = model_garden.multilevel_crop_and_resize(PYRAMID, BOXES, 2, 0.25)
    np.testing.assert_array_equal(layer(PYRAMID, BOXES), pooled)
    shapes = {level: one.shape for level, one in PYRAMID.items()}
    found = layer.backward(GRAD, BOXES, shapes)
    expected = model_garden.multilevel_crop_and_resize_backward(GRAD, BOXES, shapes, 0.25)
    for level in PYRAMID:
        np.testing.assert_array_equal(found[level], expected[level])


def crops(features: Any = PYRAMID, boxes: Any = BOXES, size: Any = 2, **options: Any) -> Any:
    return model_garden.multilevel_crop_and_resize(features, boxes, size, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: crops([FINE]), TypeError, "features must be a dict by level"),
        (lambda: crops({4: FINE}), ValueError, "levels such as '2' for keys, got 4"),
        (lambda: crops({"p4": FINE}), ValueError, "levels such as '2' for keys, got 'p4'"),
        (lambda: crops({}), ValueError, "features must have a map for each level"),
        (lambda: crops({"4": FINE, "6": FINE}), ValueError, "a map for each level from the first"),
        (
            lambda: crops({"4": FINE, "5": FINE[:, :1]}),
            ValueError,
            r"features\['5'\] must have at least 2 x 2 cells",
        ),
        (lambda: crops(boxes=BOXES[0]), ValueError, r"boxes must have shape \(1, M, 4\)"),
        (lambda: crops(boxes=BOXES * np.nan), ValueError, "boxes must be finite"),
        (lambda: crops(boxes=BOXES, batch_indices=[0, 0]), ValueError, "boxes must have shape"),
        (lambda: crops(size=0), ValueError, "output_size must be from 1"),
        (lambda: crops(sample_offset=np.inf), ValueError, "sample_offset must be finite"),
        (
            lambda: model_garden.multilevel_crop_and_resize_backward_boxes(
                GRAD[:, :1], PYRAMID, BOXES
            ),
            ValueError,
            "grad_output must have shape .* N=1 and M=2",
        ),
    ],
)
def test_wrong_arguments_are_named(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
