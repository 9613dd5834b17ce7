"""ROI align of volumes: what it has in common with that of maps, on NumPy, CuPy and the emulator.

Random calls compare it with the oracle and with its own transpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, real_dtypes_thorough_on_the_emulator
from _support.catalogue import Array, real_dtypes
from _support.loops import each

import roipool
from roipool import reference
from roipool._layout import VOLUME_LAYOUTS

RNG = np.random.default_rng(0)
VOLUMES = RNG.normal(size=(2, 5, 7, 6, 9))
ROIS = np.array(
    [
        [0, 1.25, 0.5, 2.125, 6.5, 5, 6.5],
        [1, -2, 1, -0.75, 4, 7.75, 3.5],
        [0, 2, 2, 2, 5, 5, 5],
        [1, 5, 4, 6, 2, 1, 3],  # reversed
    ]
)
SIZE = (2, 3, 4)
SCALE = (0.8, 1.0, 0.6)
GRAD = RNG.normal(size=(4, 5, *SIZE))
every_ratio = pytest.mark.parametrize("ratio", [0, 2, (3, 1, 2)])
either_convention = pytest.mark.parametrize("aligned", [True, False])


def in_layout(volumes: Array, layout: str) -> Array:
    return np.ascontiguousarray(np.moveaxis(volumes, 1, -1)) if layout == "NDHWC" else volumes


def tolerance(dtype: Any) -> dict[str, Any]:
    return {"rtol": 0, "atol": 32 * np.finfo(dtype).eps}


# ---- Beside maps


@real_dtypes
@every_ratio
@either_convention
def test_one_plane_is_a_map(dtype: str, ratio: Any, aligned: bool) -> None:
    """A box of one bin that covers the only plane is pooled as on a map, and so are gradients."""
    maps, grad = VOLUMES[:, :, 0].astype(dtype), GRAD[:, :, 0].astype(dtype)
    boxes = ROIS[:, [0, 1, 2, 4, 5]]
    deep = np.insert(ROIS.copy(), 0, 0, axis=1)[:, 1:]
    deep[:, 3], deep[:, 6] = 0, 1
    triple, pair = (ratio, ratio) if isinstance(ratio, int) else (ratio, ratio[1:])
    options: dict[str, Any] = {"aligned": aligned}
    size, at = (1, *SIZE[1:]), (0.75, triple)
    pooled = roipool.roi_align_3d(maps[:, :, None], deep, size, *at, **options)
    expected = roipool.roi_align(maps, boxes, SIZE[1:], 0.75, pair, **options)
    np.testing.assert_allclose(pooled[:, :, 0], expected, **tolerance(dtype))
    shape = maps[:, :, None].shape
    gradient = roipool.roi_align_3d_backward(grad[:, :, None], deep, shape, *at, **options)
    expected = roipool.roi_align_backward(grad, boxes, maps.shape, 0.75, pair, **options)
    np.testing.assert_allclose(gradient[:, :, 0], expected, **tolerance(dtype))
    given = grad[:, :, None], maps[:, :, None], deep, *at
    by_boxes = roipool.roi_align_3d_backward_rois(*given, **options)
    expected = roipool.roi_align_backward_rois(grad, maps, boxes, 0.75, pair, **options)
    np.testing.assert_allclose(
        by_boxes[:, [0, 1, 3, 4]], expected, rtol=0, atol=2e-3 * (dtype == "float32") + 1e-12
    )
    assert not by_boxes[:, [2, 5]].any()


# ---- The oracle, the transpose and finite differences


@real_dtypes_thorough_on_the_emulator
@each(layout=VOLUME_LAYOUTS, ratio=[0, (3, 1, 2)], aligned=[True, False], channels=[1, 33])
def test_it_is_the_oracle(
    backend: Backend, dtype: Any, layout: str, ratio: Any, aligned: bool, channels: int
) -> None:
    library = backend.library
    volumes = np.resize(VOLUMES, (2, channels, *VOLUMES.shape[2:])).astype(dtype)
    grad = np.resize(GRAD, (4, channels, *SIZE)).astype(dtype)
    own, upstream = in_layout(volumes, layout), in_layout(grad, layout)
    options: dict[str, Any] = {"aligned": aligned, "layout": layout}
    slow = {**options, "coordinate_dtype": dtype}
    at = SCALE, ratio
    pooled = library.roi_align_3d(own, ROIS, SIZE, *at, **options)
    assert pooled.dtype == dtype
    expected = reference.roi_align_3d(own, ROIS, SIZE, *at, **slow)
    np.testing.assert_allclose(pooled, expected, **tolerance(dtype))
    gradient = library.roi_align_3d_backward(upstream, ROIS, own.shape, *at, **options)
    expected = reference.roi_align_3d_backward(upstream, ROIS, own.shape, *at, **slow)
    np.testing.assert_allclose(gradient, expected, **tolerance(dtype))
    by_boxes = library.roi_align_3d_backward_rois(upstream, own, ROIS, *at, **options)
    expected = reference.roi_align_3d_backward_rois(upstream, own, ROIS, *at, **slow)
    np.testing.assert_allclose(by_boxes, expected, rtol=0, atol=2048 * np.finfo(dtype).eps)


# ---- Arrays


@each(empty=range(5))
def test_sizes_of_0(backend: Backend, empty: int) -> None:
    """A volume without cells is pooled to 0; no image has no box."""
    library, sizes = backend.library, [2, 5, 7, 6, 9]
    sizes[empty] = 0
    shape = tuple(sizes)
    volumes = np.zeros(shape, np.float32)
    rois = ROIS if empty else ROIS[:0]
    pooled = library.roi_align_3d(volumes, rois, SIZE)
    assert pooled.shape == (len(rois), shape[1], *SIZE)
    assert not pooled.any()
    assert library.roi_align_3d_backward(pooled, rois, shape).shape == shape
    assert not library.roi_align_3d_backward_rois(pooled, volumes, rois).any()


def test_a_nan_that_no_sample_reads_does_not_spread(backend: Backend) -> None:
    """Between the rows of two planes that a box reads lie others, which it does not."""
    volumes = np.full((1, 16, 4, 30, 6), np.nan, np.float32)
    volumes[:, :, 1:3, 10:12] = 1.5
    for layout in VOLUME_LAYOUTS:
        pooled = backend.library.roi_align_3d(
            in_layout(volumes, layout), [[0, 1, 10.5, 1.5, 4, 11.5, 2.5]], 1, 1.0, 1, layout=layout
        )
        np.testing.assert_array_equal(pooled, np.full_like(pooled, 1.5))
