"""Bins of precise ROI pooling that are too short for the type of their coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import (
    every_layout,
    in_layout,
    real_dtypes,
)
from _support.compare import assert_close

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
