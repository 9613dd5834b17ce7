"""What the shared tests do not say of deform_roi_pool: its mask, and offsets by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.catalogue import Array, every_layout, in_layout, real_dtypes

import roipool

RNG = np.random.default_rng(0)
MAPS = RNG.normal(size=(2, 5, 9, 8))
ROIS = np.array([[0, 1.25, 0.5, 6.5, 7], [1, -2, 1, 4, 7.75], [0, 2, 2, 5, 5]])
OFFSETS = RNG.normal(size=(3, 2, 2, 3))
MASK = RNG.random(size=(3, 1, 2, 3))
GRAD = RNG.normal(size=(3, 5, 2, 3))
SIZE = (2, 3)


@real_dtypes
@every_layout
@pytest.mark.parametrize("ratio", [0, 2, (1, 3)])
def test_without_offsets_it_is_roi_align(dtype: str, layout: str, ratio: Any) -> None:
    maps = in_layout(MAPS, layout).astype(dtype)
    none = in_layout(np.zeros_like(OFFSETS), layout)
    pooled = roipool.deform_roi_pool(maps, ROIS, none, SIZE, 0.8, ratio, layout=layout)
    expected = roipool.roi_align(maps, ROIS, SIZE, 0.8, ratio, aligned=True, layout=layout)
    np.testing.assert_allclose(pooled, expected, rtol=0, atol=8 * np.finfo(dtype).eps)


def test_equal_offsets_move_the_box() -> None:
    moved = ROIS.copy()
    moved[:, [1, 3]] += 0.1 * (ROIS[:, 3] - ROIS[:, 1])[:, None]
    moved[:, [2, 4]] -= 0.2 * (ROIS[:, 4] - ROIS[:, 2])[:, None]
    offsets = np.stack([np.ones((3, *SIZE)), -2 * np.ones((3, *SIZE))], axis=1)
    pooled = roipool.deform_roi_pool(MAPS, ROIS, offsets, SIZE, sampling_ratio=2)
    expected = roipool.roi_align(MAPS, moved, SIZE, sampling_ratio=2, aligned=True)
    np.testing.assert_allclose(pooled, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_bin_that_is_nowhere_is_0(bad: float) -> None:
    offsets = OFFSETS.copy()
    offsets[1, 0, 1, 2] = bad
    pooled = roipool.deform_roi_pool(MAPS, ROIS, offsets, SIZE)
    expected = roipool.deform_roi_pool(MAPS, ROIS, OFFSETS, SIZE)
    expected[1, :, 1, 2] = 0
    np.testing.assert_array_equal(pooled, expected)
    gradients = roipool.deform_roi_pool_backward_offsets(GRAD, MAPS, ROIS, offsets)
    assert np.isfinite(gradients).all()
    assert not gradients[1, :, 1, 2].any()


# ---- The mask


@every_layout
def test_the_mask_weights_bins(layout: str) -> None:
    maps, offsets, mask, grad = (in_layout(x, layout) for x in (MAPS, OFFSETS, MASK, GRAD))
    forward = roipool.deform_roi_pool(maps, ROIS, offsets, SIZE, layout=layout)
    out = np.empty_like(forward)
    masked = roipool.deform_roi_pool(maps, ROIS, offsets, SIZE, mask=mask, layout=layout, out=out)
    assert masked is out
    np.testing.assert_array_equal(masked, forward * mask)
    at: dict[str, Any] = {"rois": ROIS, "offsets": offsets, "layout": layout}
    for function, given in (
        (roipool.deform_roi_pool_backward, {"input_shape": maps.shape}),
        (roipool.deform_roi_pool_backward_rois, {"features": maps}),
        (roipool.deform_roi_pool_backward_offsets, {"features": maps}),
    ):
        np.testing.assert_array_equal(
            function(grad, **given, **at, mask=mask), function(grad * mask, **given, **at)
        )
    by_mask = roipool.deform_roi_pool_backward_mask(grad, maps, **at)
    axis = -1 if layout == "NHWC" else 1
    np.testing.assert_allclose(by_mask, (grad * forward).sum(axis, keepdims=True), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_mask_has_the_type_of_the_maps(dtype: str) -> None:
    maps, grad = MAPS.astype(dtype), GRAD.astype(dtype)
    assert roipool.deform_roi_pool(maps, ROIS, OFFSETS, SIZE, mask=MASK).dtype == dtype
    assert roipool.deform_roi_pool_backward_mask(grad, maps, ROIS, OFFSETS).dtype == dtype


# ---- Finite differences


def slope(change: Array, step: float = 1e-6, **arguments: Any) -> float:
    """Return the derivative of <pooled, GRAD> along a change of the offsets."""
    ends = [
        roipool.deform_roi_pool(MAPS, ROIS, OFFSETS + sign * step * change, SIZE, **arguments)
        for sign in (1, -1)
    ]
    return float(((ends[0] - ends[1]) * GRAD).sum() / (2 * step))


@pytest.mark.parametrize("gamma", [0.1, -0.7, 0.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_gradient_of_offsets_is_the_derivative(gamma: float, scale: float) -> None:
    options: dict[str, Any] = {"spatial_scale": scale, "sampling_ratio": 2, "gamma": gamma}
    gradient = roipool.deform_roi_pool_backward_offsets(GRAD, MAPS, ROIS, OFFSETS, **options)
    assert gradient.shape == OFFSETS.shape
    for at in np.ndindex(OFFSETS.shape):
        change = np.zeros_like(OFFSETS)
        change[at] = 1
        np.testing.assert_allclose(gradient[at], slope(change, **options), rtol=0, atol=2e-7)


def test_gradient_of_the_mask_is_the_derivative() -> None:
    gradient = roipool.deform_roi_pool_backward_mask(GRAD, MAPS, ROIS, OFFSETS)
    change = RNG.normal(size=MASK.shape)
    pooled = [
        roipool.deform_roi_pool(MAPS, ROIS, OFFSETS, SIZE, mask=MASK + sign * change)
        for sign in (1, -1)
    ]
    expected = ((pooled[0] - pooled[1]) * GRAD).sum() / 2
    np.testing.assert_allclose((gradient * change).sum(), expected, rtol=1e-12)
