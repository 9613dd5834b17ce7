"""A second, equal GPU: what the driver keeps for each GPU is set on both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.backends import Backend
from _support.emulator import cupy_module
from _support.kernel_calls import FULL, KERNELS, OPTIONS, library_of

import roipool
from roipool.verification.call import run
from roipool.verification.oracle import against_oracle


@pytest.fixture
def cupy() -> Iterator[Any]:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as module:
        forget_kernels()
        yield module
        forget_kernels()


def forget_kernels() -> None:
    """Let all kernels be made anew, with the shared memory that they have by default."""
    engine = Backend("emulator").module
    for kept in (engine.kernels_for, engine.function_of, engine.allow_shared_memory):
        kept.cache_clear()


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_told_of_its_shared_memory_on_both(
    cupy: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a GPU gave no kernel any shared memory by default."""
    monkeypatch.setattr(cupy_module, "DEFAULT_SHARED_BYTES", 0)
    monkeypatch.setattr(Backend("emulator").module, "SHARED_BYTES", 0)
    what, case = next(iter(FULL.cases(name, most_work=np.inf)))
    case = replace(case, options={**case.options, **OPTIONS.get(name, {})})
    for number in (0, 1, 0):
        with cupy.arrays_on(number):
            got = run(case, library_of(case))
        for result, comparison in against_oracle(case, got):
            assert comparison.problem is None, f"{what}, {result}: {comparison.problem}"


def test_launches_of_a_kernel_that_need_less_take_nothing_from_others(cupy: Any) -> None:
    """Two maps whose gradients need more shared memory than the default: 64 KB, then 55 KB."""
    rng = np.random.default_rng(0)
    for side in (39, 36, 39):
        maps = rng.normal(size=(1, side, side, 64)).astype(np.float32)
        rois = np.array([[0, 2, 3, 20, 30], [0, 5, 5, 9, 31]], np.float32)
        pooled, argmax = roipool.roi_pool(maps, rois, 3, 1.0, layout="NHWC", return_argmax=True)
        expected = roipool.roi_pool_backward(pooled, argmax, rois, maps.shape, layout="NHWC")
        arrays = [cupy.asarray(each) for each in (pooled, argmax, rois)]
        for number in (0, 1):
            with cupy.arrays_on(number):
                got = roipool.roi_pool_backward(*arrays, maps.shape, layout="NHWC")
                np.testing.assert_allclose(got.get(), expected, rtol=1e-6)
