"""Gradients of precise ROI pooling with respect to boxes, tested directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.catalogue import (
    every_dtype,
    every_layout,
    in_layout,
    real_dtypes,
    shape_in_layout,
)
from _support.compare import assert_close, compute_type
from _support.differences import differences

import roipool
from roipool import reference
from roipool.verification.call import to_nchw

SHAPE = (2, 3, 9, 8)
# Edges within cells, on cells and outside the map; large bins, several bins in a cell; no width.
ROIS = np.array(
    [
        [0, 1.3, 1.1, 6.4, 7.2], [1, 2.0, 3.0, 5.0, 6.0], [0, -2.6, -1.2, 3.3, 2.7],
        [1, 4.2, 5.1, 11.7, 12.4], [0, 2.1, 2.2, 2.6, 2.7], [1, -3.0, -3.0, 20.0, 20.0],
        [0, 3.5, 3.5, 3.5, 6.0],
    ]
)  # fmt: skip


def maps_and_upstream(size: tuple[int, int]) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=SHAPE), rng.normal(size=(len(ROIS), SHAPE[1], *size))


@every_layout
@every_dtype
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 5)], ids=str)
def test_box_gradient_is_the_oracles(
    backend: Backend, size: tuple[int, int], dtype: Any, layout: str
) -> None:
    maps, upstream = (each.astype(dtype) for each in maps_and_upstream(size))
    real = compute_type(np.dtype(dtype))
    got = roipool.precise_roi_pool_backward_rois(
        backend.to_device(in_layout(upstream, layout)),
        backend.to_device(in_layout(maps, layout)),
        backend.to_device(ROIS.astype(real)),
        0.9,
        layout=layout,
    )
    assert got.dtype == real
    wide = maps.astype(np.float64), upstream.astype(np.float64)
    expected = reference.precise_roi_pool_backward_rois(
        wide[1], wide[0], ROIS.astype(real), 0.9, coordinate_dtype=real
    )
    # A slope is a mean along an edge less the bin's mean, over the bin's length.
    sides = np.maximum((ROIS[:, 3:] - ROIS[:, 1:3]) * 0.9 / size[::-1], 1e-3)
    slopes = np.abs(wide[1]).sum(axis=(1, 2, 3)) * np.abs(wide[0]).max()
    terms = np.tile(0.9 * slopes[:, None] / sides, 2)
    assert_close(backend.to_host(got), expected, terms, ulps=8)


@thorough_on_the_emulator
@every_layout
def test_box_gradient_by_differences(backend: Backend, layout: str) -> None:
    moving = ROIS[[0, 2, 3, 4]]  # no edge on a cell, where slopes jump
    maps, upstream = maps_and_upstream((2, 3))
    upstream = in_layout(upstream[: len(moving)], layout)
    there = backend.to_device(in_layout(maps, layout))
    assert there.shape == shape_in_layout(SHAPE, layout)

    def loss(numbers: Any) -> float:
        boxes = backend.to_device(np.hstack([moving[:, :1], numbers]))
        pooled = roipool.precise_roi_pool(there, boxes, (2, 3), 0.9, layout=layout)
        return float(np.sum(backend.to_host(pooled) * upstream))

    actual = roipool.precise_roi_pool_backward_rois(
        backend.to_device(upstream), there, backend.to_device(moving), 0.9, layout=layout
    )
    expected = differences(loss, moving[:, 1:], 1e-6)
    np.testing.assert_allclose(backend.to_host(actual), expected, rtol=0, atol=1e-7)


@every_layout
@real_dtypes
@pytest.mark.parametrize("size", [(1, 1), (7, 1), (1, 7), (7, 5)], ids=str)
def test_bins_too_short_for_their_type_are_points(
    backend: Backend, size: tuple[int, int], dtype: Any, layout: str
) -> None:
    """Both edges of some bins round to one number, of which the bilinear value remains."""
    low = np.array([4, 3], dtype)
    high = np.nextafter(low, np.array(9, dtype))
    maps = maps_and_upstream(size)[0].astype(dtype)
    rois = np.array([[0, *low, *high], [1, *(low + 0.25), *(high + 0.5)]], dtype)
    pooled = roipool.precise_roi_pool(
        backend.to_device(in_layout(maps, layout)), backend.to_device(rois), size, layout=layout
    )
    expected = reference.precise_roi_pool(
        maps.astype(np.float64), rois, size, coordinate_dtype=dtype
    )
    found = backend.to_host(pooled)
    found = to_nchw(found, layout)
    assert_close(found, expected, np.abs(maps).max() + 0 * expected, ulps=8)
    point = np.broadcast_to(maps[0, :, 3, 4, None, None], found[0].shape)
    np.testing.assert_allclose(found[0], point, rtol=1e-5)
