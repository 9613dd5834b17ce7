"""mmcv's deformable ROI pooling; `test_goldens.py` compares it with mmcv's answers."""

from __future__ import annotations

import numpy as np

import roipool
from roipool.compat import mmcv

RNG = np.random.default_rng(0)
MAPS = RNG.normal(size=(2, 3, 7, 9))
ROIS = np.array([[0, 1.25, 0.5, 6.5, 7], [1, -2, 1, 4, 7.75]])
OFFSET = RNG.normal(size=(2, 2, 2, 3))
GRAD = RNG.normal(size=(2, 3, 2, 3))


def test_the_exact_gradient_is_another_at_the_border() -> None:
    at = GRAD, MAPS, ROIS, OFFSET
    own = mmcv.deform_roi_pool_backward_offset(*at, sampling_ratio=2)
    exact = mmcv.deform_roi_pool_backward_offset(*at, sampling_ratio=2, exact_gradient=True)
    assert not np.allclose(own, exact)
    inside = np.array([[0, 2, 2, 5, 5.0], [1, 3, 1, 6, 4]]), OFFSET / 4
    own, exact = (
        mmcv.deform_roi_pool_backward_offset(
            GRAD, MAPS, *inside, sampling_ratio=2, exact_gradient=each
        )
        for each in (False, True)
    )
    np.testing.assert_allclose(own, exact, rtol=0, atol=1e-12)


def test_without_offset_it_is_roi_align() -> None:
    pooled = mmcv.DeformRoIPool((2, 3), 0.5)(MAPS, ROIS)
    np.testing.assert_array_equal(pooled, mmcv.roi_align(MAPS, ROIS, (2, 3), 0.5))
    gradient = mmcv.deform_roi_pool_backward(GRAD, ROIS, None, MAPS.shape, 0.5)
    expected = mmcv.roi_align_backward(GRAD, ROIS, None, None, MAPS.shape, 0.5, pool_mode="avg")
    np.testing.assert_array_equal(gradient, expected)


def test_the_layer_has_its_arguments() -> None:
    layer = mmcv.DeformRoIPool(2, 0.5, 1, gamma=0.2)
    assert repr(layer) == (
        "DeformRoIPool(output_size=(2, 2), spatial_scale=0.5, sampling_ratio=1, gamma=0.2)"
    )
    offset = OFFSET[..., :2]
    expected = roipool.deform_roi_pool(MAPS, ROIS, offset, 2, 0.5, 1, gamma=np.float32(0.2))
    np.testing.assert_array_equal(layer(MAPS, ROIS, offset), expected)
