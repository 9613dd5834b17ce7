"""Chainer's newer functions: empty bins, samples outside the map, and argmaxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator

from roipool.compat import chainer

MAPS = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
NEGATIVE = np.full((1, 1, 4, 4), -2, np.float32)
OUTSIDE = np.array([[8, 8, 9, 9]], np.float32)
HALF_OUTSIDE = np.array([[2, 2, 8, 8]], np.float32)


def on(backend: Backend, *arrays: Any) -> list[Any]:
    return [backend.to_device(np.asarray(one)) for one in arrays]


@thorough_on_the_emulator
@pytest.mark.parametrize("function", [chainer.roi_max_pooling_2d, chainer.roi_max_align_2d])
def test_an_empty_maximum_is_minus_infinity(backend: Backend, function: Callable[..., Any]) -> None:
    arrays = on(backend, MAPS, OUTSIDE, [0])
    pooled, argmax = function(*arrays, 2, 1.0, return_argmax=True)
    assert np.isneginf(backend.to_host(pooled)).all()
    assert (backend.to_host(argmax) == -1).all()
    backward: Callable[..., Any] = getattr(chainer, f"{function.__name__}_backward")
    (grad,) = on(backend, np.ones((1, 1, 2, 2), np.float32))
    assert not backend.to_host(backward(grad, argmax, *arrays[1:], MAPS.shape, 1.0)).any()


@thorough_on_the_emulator
def test_samples_outside_do_not_take_part_in_a_maximum(backend: Backend) -> None:
    arrays = on(backend, NEGATIVE, HALF_OUTSIDE, [0])
    average = backend.to_host(chainer.roi_average_align_2d(*arrays, 1, 1.0, 2))
    maximum = chainer.roi_max_align_2d(*arrays, 1, 1.0, 2)
    assert average.item() == -0.5  # one of four samples is inside
    assert not isinstance(maximum, tuple)
    assert backend.to_host(maximum).item() == -2


@thorough_on_the_emulator
def test_the_last_row_and_column_are_left_out_of_a_maximum(backend: Backend) -> None:
    boxes = [[1, 1, 3, 4], [2, 2, 2, 2], [3, 3, 1, 1]]  # the others have one cell
    arrays = on(backend, MAPS, np.array(boxes, np.float32), [0, 0, 0])
    pooled, argmax = chainer.roi_max_pooling_2d(*arrays, 1, 1.0, return_argmax=True)
    assert backend.to_host(pooled).ravel().tolist() == [14, 13, 19]
    grad = on(backend, np.ones((3, 1, 1, 1), np.float32))[0]
    gradient = chainer.roi_max_pooling_2d_backward(grad, argmax, *arrays[1:], MAPS.shape, 1.0)
    assert np.flatnonzero(backend.to_host(gradient)).tolist() == [12, 13, 18]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_have_the_type_of_the_maps(dtype: type) -> None:
    maps, grad = MAPS.astype(dtype), np.ones((1, 1, 1, 1), dtype)
    pooled = chainer.roi_average_align_2d(maps, [[1, 1, 3, 3]], [0], 1, 1.0)
    gradient = chainer.roi_average_align_2d_backward(grad, [[1, 1, 3, 3]], [0], MAPS.shape, 1.0)
    assert pooled.dtype == gradient.dtype == dtype


def test_a_sampling_ratio_of_none_is_adaptive() -> None:
    box = ([[0, 0, 4.9, 2.9]], [0], 2, 1.0)
    adaptive = chainer.roi_average_align_2d(MAPS, *box)
    for same in (None, 0, (3, 2), (None, 2), [3, None]):
        np.testing.assert_array_equal(chainer.roi_average_align_2d(MAPS, *box, same), adaptive)


def test_boxes_are_those_of_float64() -> None:
    row, column = np.mgrid[:5, :5].astype(np.float64)
    ramp = (10 * row + column)[None, None]
    low, high = 1.1, 2.3  # float32 has neither
    pooled = chainer.roi_average_align_2d(ramp, [[low, low, high, high]], [0], 1, 1.0, 2)
    assert pooled.item() == pytest.approx(11 * (low + high) / 2, rel=1e-14)
