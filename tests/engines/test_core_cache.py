"""Parts of maps, and planes, that follow the size of a core's own cache: the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _support.compare import assert_same_bits

import roipool
from roipool import _cpu

RNG = np.random.default_rng(0)
MAPS = (1, 100, 90, 120)
ROIS = np.column_stack([np.zeros(60), *RNG.uniform(-5, 110, (4, 60))])


@pytest.fixture(autouse=True)
def same_cache_after() -> Iterator[None]:
    """Restore the size."""
    before = _cpu.core_cache()
    yield
    _cpu.suppose_core_cache(before)


def test_known_size() -> None:
    assert 2**18 <= _cpu.core_cache() <= 2**22


def average(dtype: str, layout: str) -> Any:
    maps = RNG.normal(size=MAPS).astype(dtype)
    maps = maps if layout == "NCHW" else np.ascontiguousarray(maps.transpose(0, 2, 3, 1))
    return lambda: roipool.roi_align(maps, ROIS, 5, layout=layout)


def gradient(dtype: str, layout: str) -> Any:
    shape = (60, 100, 5, 5) if layout == "NCHW" else (60, 5, 5, 100)
    of_maps = MAPS if layout == "NCHW" else (1, 90, 120, 100)
    grad = RNG.normal(size=shape).astype(dtype)
    return lambda: roipool.roi_align_backward(grad, ROIS, of_maps, layout=layout)


def gradient_of_maximum(dtype: str, layout: str) -> Any:
    maps = RNG.integers(0, 3, MAPS).astype(dtype)
    maps = maps if layout == "NCHW" else np.ascontiguousarray(maps.transpose(0, 2, 3, 1))
    pooled, argmax = roipool.roi_pool(maps, ROIS, 5, layout=layout, return_argmax=True)
    grad = RNG.normal(size=pooled.shape).astype(dtype)
    return lambda: roipool.roi_pool_backward(grad, argmax, ROIS, maps.shape, layout=layout)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("prepare", [average, gradient, gradient_of_maximum])
def test_any_size(
    prepare: Callable[[str, str], Callable[[], Any]], dtype: str, layout: str
) -> None:
    call = prepare(dtype, layout)
    expected = call()
    for size in (2**12, 2**18, 2**22):
        _cpu.suppose_core_cache(size)
        assert_same_bits(call(), expected)
