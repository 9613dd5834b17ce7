"""Results do not depend on the caller's floating-point environment, which is restored.

XLA's threads flush subnormals, PyTorch does after `set_flush_denormal`, and a library that was
built with -ffast-math changes the process that loads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from _support.cases import CASES, IMAGES, PYRAMID_CASES, OperationCase, PyramidCase, to_layout
from _support.catalogue import every_dtype
from _support.floats import flushed_subnormals, is_flushing, needs_flushing
from _support.loops import each

import roipool
from roipool import _cpu

pytestmark = needs_flushing

# Numbers around the smallest normal number, with subnormal sums and products.
SCALES = {"float16": 2.0**-17, "bfloat16": 2.0**-128, "float32": 2.0**-128, "float64": 2.0**-1025}

Array = np.ndarray[Any, Any]


def halved(case: PyramidCase, features: Array, layout: str = "NCHW") -> list[Array]:
    """Return a pyramid without NumPy's arithmetic, which would flush subnormal numbers."""
    del case
    return [features, features[:, ::2, ::2] if layout == "NHWC" else features[:, :, ::2, ::2]]


@pytest.fixture(autouse=True)
def same_settings_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the instruction set and the number of threads."""
    monkeypatch.setattr(PyramidCase, "pyramid", halved)
    before = _cpu.instruction_set()
    yield
    _cpu.use_instruction_set(before)
    roipool.set_num_threads(1)


def subnormal(shape: tuple[int, ...], dtype: Any, layout: str) -> Array:
    values = np.random.default_rng(0).standard_normal(shape)
    scaled = np.ldexp(values, int(np.log2(SCALES[np.dtype(dtype).name])))
    return np.ascontiguousarray(to_layout(scaled.astype(dtype), layout))


def results(case: OperationCase, maps: Array, layout: str) -> list[bytes]:
    """Return the bytes of a forward and its gradients, since comparisons would also flush."""
    boxes = case.boxes().astype(np.float64 if maps.dtype == np.float64 else np.float32)
    place = (boxes, case.indices())
    pool = {"return_argmax": True} if case.variant.has_argmax else {}
    found = case.pool(maps, *place, layout=layout, **pool)
    pooled, argmax = found if pool else (found, None)
    arrays = [pooled] if argmax is None else [pooled, argmax]
    gradient = case.gradient(pooled, argmax, *place, maps.shape, layout=layout)
    arrays += gradient if isinstance(gradient, list) else [gradient]
    if case.moves:
        arrays.append(case.box_gradient(pooled, maps, *place, layout=layout))
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("case", [*CASES, *PYRAMID_CASES], ids=str)
@every_dtype
@each(name=_cpu.instruction_sets(), channels=[1, 9, 17], layout=["NCHW", "NHWC"])
def test_flushed_subnormals(
    name: str, channels: int, layout: str, case: OperationCase, dtype: Any
) -> None:
    _cpu.use_instruction_set(name)
    maps = subnormal((IMAGES, channels * case.groups, 8, 9), dtype, layout)
    expected = results(case, maps, layout)
    with flushed_subnormals():
        found = results(case, maps, layout)
        assert is_flushing()
    assert found == expected
    assert not is_flushing()


@every_dtype
def test_threads_that_a_flushing_thread_starts(dtype: Any) -> None:
    maps = subnormal((1, 64, 20, 30), dtype, "NCHW")
    rois = np.tile(np.array([[0, 2, 3, 25, 17]], np.float32), (40, 1))
    expected = roipool.roi_align(maps, rois, 7, sampling_ratio=2)
    with flushed_subnormals():
        roipool.set_num_threads(5)  # more than any test before: new ones, like this one
        found = roipool.roi_align(maps, rois, 7, sampling_ratio=2)
    assert found.tobytes() == expected.tobytes()


def test_these_numbers_are_lost_where_they_are_flushed() -> None:
    """Otherwise the tests above would test nothing."""
    for name, scale in SCALES.items():
        if name in ("float32", "float64"):
            values = np.array([scale], name)
            assert values.any()
            with flushed_subnormals():
                assert not (values * values.dtype.type(1)).any()
