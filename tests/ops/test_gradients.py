"""Gradients: finite differences and the gradient of the gradient, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.catalogue import (
    Array,
    every_dtype,
    every_layout,
    shape_in_layout,
)
from _support.compare import compute_type
from _support.differences import check_features, differences, numbers

import roipool

REAL = ("float32", "float64")
SHAPE = (2, 3, 6, 7)
ROIS = np.array(
    [
        [0, 0.31, 0.72, 4.93, 5.27],
        [1, -1.64, 1.13, 3.38, 8.45],
        [0, 5.12, 4.66, 2.17, 1.04],  # reversed
        [1, 2.41, 2.63, 2.78, 2.94],  # shorter than a cell
        [1, 9.3, 1.1, 12.2, 4.4],  # outside
    ]
)
BOXES = np.array([[0.07, 0.11, 0.83, 0.91], [-0.23, 0.31, 0.58, 1.27], [0.94, 0.86, 0.13, 0.09]])
BOX_INDICES = np.array([1, 0, 1])

ratios = pytest.mark.parametrize("ratio", [0, 2, (1, 3)], ids=str)
alignments = pytest.mark.parametrize("aligned", [True, False])
methods = pytest.mark.parametrize("method", ["bilinear", "nearest"])


# ---- Finite differences with respect to the features


@thorough_on_the_emulator
@every_layout
def test_roi_pool(backend: Backend, layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    rois = backend.to_device(ROIS)
    maps = backend.to_device(numbers(*shape))
    _, argmax = roipool.roi_pool(maps, rois, (2, 3), layout=layout, return_argmax=True)
    check_features(
        backend,
        lambda values: roipool.roi_pool(values, rois, (2, 3), layout=layout),
        lambda upstream: roipool.roi_pool_backward(upstream, argmax, rois, shape, layout=layout),
        shape,
        step=1e-5,
        layout=layout,
    )


@thorough_on_the_emulator
@every_layout
def test_roi_average_pool(backend: Backend, layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    rois = backend.to_device(ROIS)
    check_features(
        backend,
        lambda values: roipool.roi_average_pool(values, rois, (2, 3), layout=layout),
        lambda grad: roipool.roi_average_pool_backward(grad, rois, shape, layout=layout),
        shape,
        step=1.0,
        layout=layout,
    )


@thorough_on_the_emulator
@every_layout
@ratios
@alignments
def test_roi_align_average(backend: Backend, aligned: bool, ratio: Any, layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    options: dict[str, Any] = {"aligned": aligned, "layout": layout}
    rois = backend.to_device(ROIS)
    check_features(
        backend,
        lambda values: roipool.roi_align(values, rois, (2, 3), 0.9, ratio, **options),
        lambda grad: roipool.roi_align_backward(grad, rois, shape, 0.9, ratio, **options),
        shape,
        step=1.0,
        layout=layout,
    )


@thorough_on_the_emulator
@every_layout
@ratios
@alignments
def test_roi_align_maximum(backend: Backend, aligned: bool, ratio: Any, layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    options: dict[str, Any] = {"aligned": aligned, "layout": layout, "mode": "max"}
    rois = backend.to_device(ROIS)
    maps = backend.to_device(numbers(*shape))
    _, argmax = roipool.roi_align(maps, rois, (2, 3), 0.9, ratio, return_argmax=True, **options)
    check_features(
        backend,
        lambda values: roipool.roi_align(values, rois, (2, 3), 0.9, ratio, **options),
        lambda grad: roipool.roi_align_backward(
            grad, rois, shape, 0.9, ratio, argmax=argmax, **options
        ),
        shape,
        step=1e-5,
        layout=layout,
    )


@thorough_on_the_emulator
@every_layout
@methods
def test_crop_and_resize(backend: Backend, method: str, layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    options: dict[str, Any] = {"method": method, "layout": layout}
    boxes, images = backend.to_device(BOXES), backend.to_device(BOX_INDICES)
    check_features(
        backend,
        lambda values: roipool.crop_and_resize(values, boxes, images, (2, 3), **options),
        lambda grad: roipool.crop_and_resize_backward(grad, boxes, images, shape, **options),
        shape,
        step=1.0,
        layout=layout,
    )


# ---- Finite differences with respect to the boxes. No sample is within a step of a cell centre,
# where slopes jump.


@thorough_on_the_emulator
@every_layout
@ratios
@alignments
def test_roi_align_boxes(backend: Backend, aligned: bool, ratio: Any, layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    options: dict[str, Any] = {"aligned": aligned, "layout": layout}
    maps = numbers(*shape)
    upstream = numbers(*shape_in_layout((len(ROIS), SHAPE[1], 2, 3), layout))
    images = backend.to_device(ROIS[:, 0].astype(np.int64))

    def loss(boxes: Array) -> float:
        pooled = roipool.roi_align(
            backend.to_device(maps),
            backend.to_device(boxes),
            (2, 3),
            0.9,
            ratio,
            batch_indices=images,
            **options,
        )
        return float(np.sum(backend.to_host(pooled) * upstream))

    actual = roipool.roi_align_backward_rois(
        backend.to_device(upstream),
        backend.to_device(maps),
        backend.to_device(ROIS),
        0.9,
        ratio,
        **options,
    )
    expected = differences(loss, ROIS[:, 1:], 1e-6)
    np.testing.assert_allclose(backend.to_host(actual), expected, rtol=0, atol=1e-8)
    assert np.any(expected[:-1])
    assert not np.any(backend.to_host(actual)[-1])


@thorough_on_the_emulator
@every_layout
@pytest.mark.parametrize("size", [(2, 3), (1, 4), (3, 1), (1, 1)], ids=str)
def test_crop_and_resize_boxes(backend: Backend, size: tuple[int, int], layout: str) -> None:
    shape = shape_in_layout(SHAPE, layout)
    maps = numbers(*shape)
    upstream = numbers(*shape_in_layout((len(BOXES), SHAPE[1], *size), layout))
    images = backend.to_device(BOX_INDICES)

    def loss(boxes: Array) -> float:
        crops = roipool.crop_and_resize(
            backend.to_device(maps), backend.to_device(boxes), images, size, layout=layout
        )
        return float(np.sum(backend.to_host(crops) * upstream))

    actual = roipool.crop_and_resize_backward_boxes(
        backend.to_device(upstream),
        backend.to_device(maps),
        backend.to_device(BOXES),
        images,
        layout=layout,
    )
    expected = differences(loss, BOXES, 1e-6)
    np.testing.assert_allclose(backend.to_host(actual), expected, rtol=0, atol=1e-8)
    assert np.any(expected)


# ---- Averages are linear: the backward's matrix is the transpose of the forward's, bit for bit


def matrix(backend: Backend, linear: Callable[[Any], Any], shape: tuple[int, ...]) -> Array:
    """Return the matrix of a linear function of arrays of `shape`, one column per unit array."""
    columns = []
    for place in range(int(np.prod(shape))):
        unit = np.zeros(shape)
        unit.flat[place] = 1
        columns.append(backend.to_host(linear(backend.to_device(unit))).ravel())
    return np.stack(columns, axis=1)


def one_channel(boxes: int, layout: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of maps and of pooled values."""
    return shape_in_layout((2, 1, 6, 7), layout), shape_in_layout((boxes, 1, 2, 3), layout)


def check_matrices(
    backend: Backend,
    forward: Callable[[Any], Any],
    backward: Callable[[Any], Any],
    maps: tuple[int, ...],
    pooled: tuple[int, ...],
) -> None:
    """Compare the matrices of a forward, on `maps`, and its backward, on `pooled`."""
    there, back = matrix(backend, forward, maps), matrix(backend, backward, pooled)
    assert np.any(there)
    # Both sum the same products, in another order.
    np.testing.assert_array_max_ulp(there, back.T, 2, there.dtype)


@thorough_on_the_emulator
@every_layout
@alignments
@ratios
def test_gradient_of_the_gradient_of_roi_align(
    backend: Backend, ratio: Any, aligned: bool, layout: str
) -> None:
    maps, pooled = one_channel(len(ROIS), layout)
    rois = backend.to_device(ROIS)
    options: dict[str, Any] = {"aligned": aligned, "layout": layout}
    check_matrices(
        backend,
        lambda unit: roipool.roi_align(unit, rois, (2, 3), 0.9, ratio, **options),
        lambda unit: roipool.roi_align_backward(unit, rois, maps, 0.9, ratio, **options),
        maps,
        pooled,
    )


@thorough_on_the_emulator
@every_layout
def test_gradient_of_the_gradient_of_roi_average_pool(backend: Backend, layout: str) -> None:
    maps, pooled = one_channel(len(ROIS), layout)
    rois = backend.to_device(ROIS)
    check_matrices(
        backend,
        lambda unit: roipool.roi_average_pool(unit, rois, (2, 3), layout=layout),
        lambda unit: roipool.roi_average_pool_backward(unit, rois, maps, layout=layout),
        maps,
        pooled,
    )


@thorough_on_the_emulator
@every_layout
@methods
def test_gradient_of_the_gradient_of_crop_and_resize(
    backend: Backend, method: str, layout: str
) -> None:
    maps, pooled = one_channel(len(BOXES), layout)
    boxes, images = backend.to_device(BOXES), backend.to_device(BOX_INDICES)
    options: dict[str, Any] = {"method": method, "layout": layout}
    check_matrices(
        backend,
        lambda unit: roipool.crop_and_resize(unit, boxes, images, (2, 3), **options),
        lambda unit: roipool.crop_and_resize_backward(unit, boxes, images, maps, **options),
        maps,
        pooled,
    )


# ---- The same numbers for all element types


@thorough_on_the_emulator
@every_dtype
def test_box_gradients_have_the_type_of_coordinates(backend: Backend, dtype: Any) -> None:
    maps = backend.to_device(numbers(*SHAPE).astype(dtype))
    grad = backend.to_device(numbers(len(BOXES), SHAPE[1], 2, 2).astype(dtype))
    boxes, images = backend.to_device(BOXES), backend.to_device(BOX_INDICES)
    by_roi = roipool.roi_align_backward_rois(grad, maps, boxes, batch_indices=images)
    by_box = roipool.crop_and_resize_backward_boxes(grad, maps, boxes, images)
    assert by_roi.dtype == by_box.dtype == compute_type(np.dtype(dtype))
    assert by_roi.shape == by_box.shape == (len(BOXES), 4)
