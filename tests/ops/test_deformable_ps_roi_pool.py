"""What the shared tests do not say of deformable_ps_roi_pool: classes, parts and offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import Array, every_layout, in_layout, to_nchw

import roipool

RNG = np.random.default_rng(0)
GROUPS, CLASSES, OF_CLASS = (3, 2), 3, 2
POOLED = CLASSES * OF_CLASS
SIZE = (3, 4)
MAPS = RNG.normal(size=(2, POOLED * 6, 9, 8))
ROIS = np.array([[0, 1.25, 0.5, 6.5, 7], [1, -2, 1, 4, 7.75], [0, 2, 2, 5, 5]])
OFFSETS = RNG.normal(size=(3, 2 * CLASSES, 2, 6))
GRAD = RNG.normal(size=(3, POOLED, *SIZE))
OPTIONS: dict[str, Any] = {
    "spatial_scale": 0.8,
    "samples": (2, 3),
    "group_size": GROUPS,
    "gamma": 0.3,
}


def offsets_of_bins(number: int) -> Array:
    """Return the offsets of the bins of one class."""
    own = OFFSETS[:, 2 * number : 2 * number + 2]
    rows, columns = [0, 0, 1], [0, 1, 3, 4]
    return own[:, :, rows][..., columns]


@every_layout
def test_classes_are_pooled_by_themselves(backend: Backend, layout: str) -> None:
    maps, offsets, grad = (
        backend.to_device(np.ascontiguousarray(in_layout(each, layout)))
        for each in (MAPS, OFFSETS, GRAD)
    )
    options = {**OPTIONS, "layout": layout}
    rois, shape = backend.to_device(ROIS), in_layout(MAPS, layout).shape
    pooled = roipool.deformable_ps_roi_pool(maps, rois, offsets, SIZE, **options)
    gradient = roipool.deformable_ps_roi_pool_backward(grad, rois, offsets, shape, **options)
    by_offsets = roipool.deformable_ps_roi_pool_backward_offsets(
        grad, maps, rois, offsets, **options
    )
    found = [to_nchw(backend.to_host(each), layout) for each in (pooled, gradient, by_offsets)]
    for number in range(CLASSES):
        own = MAPS[:, number * OF_CLASS * 6 : (number + 1) * OF_CLASS * 6].copy()
        channels = slice(number * OF_CLASS, (number + 1) * OF_CLASS)
        of_bins, upstream = offsets_of_bins(number), GRAD[:, channels].copy()
        at = ROIS, of_bins
        expected = roipool.deformable_ps_roi_pool(own, *at, SIZE, **OPTIONS)
        np.testing.assert_allclose(found[0][:, channels], expected, rtol=0, atol=1e-13)
        expected = roipool.deformable_ps_roi_pool_backward(upstream, *at, own.shape, **OPTIONS)
        channels = slice(number * OF_CLASS * 6, (number + 1) * OF_CLASS * 6)
        np.testing.assert_allclose(found[1][:, channels], expected, rtol=0, atol=1e-13)
        expected = roipool.deformable_ps_roi_pool_backward_offsets(upstream, own, *at, **OPTIONS)
        sums = np.zeros((3, 2, 2, 6))
        for row, column in np.ndindex(*SIZE):
            sums[:, :, row * 2 // 3, column * 6 // 4] += expected[:, :, row, column]
        of_class = found[2][:, 2 * number : 2 * number + 2]
        np.testing.assert_allclose(of_class, sums, rtol=0, atol=1e-12)


def test_equal_offsets_move_the_box() -> None:
    """By whole pixels, which rounding leaves alone."""
    rois = np.round(ROIS)
    sides = rois[:, 3:] + 1 - rois[:, 1:3]
    shift = np.array([2, -1])
    offsets = np.tile((shift / sides)[:, :, None, None], (1, CLASSES, 2, 6))
    pooled = roipool.deformable_ps_roi_pool(
        MAPS, rois, offsets, SIZE, samples=2, group_size=GROUPS, gamma=1
    )
    moved = rois + np.array([0, *shift, *shift])
    expected = roipool.deformable_ps_roi_pool(
        MAPS, moved, 0 * offsets, SIZE, samples=2, group_size=GROUPS, gamma=1
    )
    np.testing.assert_allclose(pooled, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_bin_that_is_nowhere_is_0(bad: float) -> None:
    offsets = np.zeros((3, 2 * CLASSES, *SIZE))
    expected = roipool.deformable_ps_roi_pool(MAPS, ROIS, offsets, SIZE, **OPTIONS)
    offsets[1, 2, 1, 2] = bad  # to the right, of the second class
    pooled = roipool.deformable_ps_roi_pool(MAPS, ROIS, offsets, SIZE, **OPTIONS)
    expected[1, OF_CLASS : 2 * OF_CLASS, 1, 2] = 0
    np.testing.assert_array_equal(pooled, expected)
    gradients = roipool.deformable_ps_roi_pool_backward_offsets(
        GRAD, MAPS, ROIS, offsets, **OPTIONS
    )
    assert np.isfinite(gradients).all()
    assert not gradients[1, 2:4, 1, 2].any()


@pytest.mark.parametrize("gamma", [0.1, -0.7, 0.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_gradient_of_offsets_is_the_derivative(gamma: float, scale: float) -> None:
    options = {**OPTIONS, "gamma": gamma, "spatial_scale": scale}
    gradient = roipool.deformable_ps_roi_pool_backward_offsets(GRAD, MAPS, ROIS, OFFSETS, **options)
    assert gradient.shape == OFFSETS.shape
    step = 1e-6
    for at in np.ndindex(OFFSETS.shape):
        ends = []
        for sign in (1, -1):
            offsets = OFFSETS.copy()
            offsets[at] += sign * step
            ends.append(roipool.deformable_ps_roi_pool(MAPS, ROIS, offsets, SIZE, **options))
        slope = ((ends[0] - ends[1]) * GRAD).sum() / (2 * step)
        np.testing.assert_allclose(gradient[at], slope, rtol=0, atol=1e-6)


BAD_SHAPES: list[tuple[tuple[int, ...], str]] = [
    ((3, 2, 2), r"must have shape \(3, 2 \* classes, rows, columns\), with at least one of each"),
    ((2, 2, 2, 2), r"must have shape \(3, 2 \* classes"),
    ((3, 3, 2, 2), r"must have shape \(3, 2 \* classes"),
    ((3, 0, 2, 2), "at least one of each"),
    ((3, 2, 0, 2), "at least one of each"),
    ((3, 8, 2, 2), "are those of 4 classes, which must divide the 6 channels of pooled values"),
]


@pytest.mark.parametrize(("shape", "problem"), BAD_SHAPES)
def test_offsets_of_other_shapes_are_errors(shape: tuple[int, ...], problem: str) -> None:
    out = np.full((3, POOLED, *SIZE), 7.0)
    with pytest.raises(ValueError, match=f"offsets.* {problem}"):
        roipool.deformable_ps_roi_pool(MAPS, ROIS, np.zeros(shape), SIZE, out=out, **OPTIONS)
    assert (out == 7).all()


def test_groups_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="features must have a multiple of 3 x 2 channels"):
        roipool.deformable_ps_roi_pool(MAPS[:, :35], ROIS, OFFSETS, SIZE, **OPTIONS)
