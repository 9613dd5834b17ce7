"""Maxima over NaN: NaN is ignored; a bin of only NaN is -inf and has no argmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import every_dtype, every_layout, in_layout

import roipool

POOLS: dict[str, Any] = {
    "roi_pool": lambda maps, rois, **form: roipool.roi_pool(maps, rois, 1, **form),
    "roi_align": lambda maps, rois, **form: roipool.roi_align(
        maps, rois, 1, 1.0, 2, mode="max", **form
    ),
}
WHOLE, OF_NAN = [0, 0, 0, 2, 2], [0, 1.7, 1.7, 2.3, 2.3]  # the second reads cells of NaN only


@every_layout
@every_dtype
@pytest.mark.parametrize("name", POOLS)
def test_nan_is_no_maximum(backend: Backend, name: str, dtype: Any, layout: str) -> None:
    cells = np.full((1, 5, 3, 3), np.nan)
    cells[0, :, 0, 0] = [-5, -4, 3, 2, 1]
    maps = backend.to_device(in_layout(cells.astype(dtype), layout))
    boxes = backend.to_device(np.array([WHOLE, OF_NAN]))
    form = {"layout": layout, "return_argmax": True}
    pooled, argmax = (backend.to_host(each) for each in POOLS[name](maps, boxes, **form))
    pooled, argmax = pooled.reshape(2, 5).astype(float), argmax.reshape(2, 5)
    np.testing.assert_array_equal(pooled[1], -np.inf)
    np.testing.assert_array_equal(argmax[1], -1)
    if name == "roi_pool":
        np.testing.assert_array_equal(pooled[0], [-5, -4, 3, 2, 1])
        np.testing.assert_array_equal(argmax[0], 0)
    else:
        assert not np.isnan(pooled).any()
