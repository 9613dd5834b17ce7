"""Outputs beyond one tile of scratch memory: many columns, many rows, odd and even numbers of bins.

A channel alone takes another path (no vectors) than the same channel among others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.catalogue import every_layout, in_layout, real_dtypes

import roipool

SIZES = [(1, 1023), (1, 1025), (2, 1027), (1, 2049), (3, 4100), (1025, 1), (700, 3)]
BOXES = np.array([[0, 0, 0, 6, 5], [0, 1, 1, 4, 4], [0, -3, 2, 9, 3.5]])


def maps(dtype: Any, channels: int = 21) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((1, channels, 6, 7)).astype(dtype)


@pytest.mark.parametrize("size", SIZES, ids=str)
class TestChannelsAloneAndTogether:
    @every_layout
    @real_dtypes
    def test_maxima(self, size: tuple[int, int], dtype: Any, layout: str) -> None:
        features, axis = in_layout(maps(dtype), layout), layout.index("C")
        for pool in (roipool.roi_pool, roipool.roi_align):
            options: dict[str, Any] = {"layout": layout, "return_argmax": True}
            if pool is roipool.roi_align:
                options |= {"mode": "max", "sampling_ratio": 1}
            together = pool(features, BOXES, size, **options)
            for channel in (0, 7, 15, 20):
                alone = pool(features.take([channel], axis), BOXES, size, **options)
                for values, of_one in zip(together, alone, strict=True):
                    np.testing.assert_array_equal(values.take([channel], axis), of_one)

    @every_layout
    @real_dtypes
    def test_average_and_its_gradient(self, size: tuple[int, int], dtype: Any, layout: str) -> None:
        features, axis = in_layout(maps(dtype), layout), layout.index("C")
        together = roipool.roi_align(features, BOXES, size, layout=layout)
        back = roipool.roi_align_backward(together, BOXES, features.shape, layout=layout)
        ulp = 8 * np.finfo(dtype).eps
        for channel in (0, 20):
            one = features.take([channel], axis)
            alone = roipool.roi_align(one, BOXES, size, layout=layout)
            np.testing.assert_allclose(together.take([channel], axis), alone, rtol=0, atol=4 * ulp)
            own = together.take([channel], axis)
            back_alone = roipool.roi_align_backward(own, BOXES, one.shape, layout=layout)
            largest = np.abs(back_alone).max()
            of_one = back.take([channel], axis)
            np.testing.assert_allclose(of_one, back_alone, rtol=0, atol=ulp * largest)
