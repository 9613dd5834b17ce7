"""Calls on CuPy arrays with the options of an earlier call, which the driver launches at once."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.catalogue import DTYPES
from _support.compare import compute_type
from _support.emulator import driver, streams

import roipool
from roipool._cpu import KeptCalls
from roipool.compat import torchvision

SHAPES = ((2, 41, 19, 35), (1, 41, 23, 31), (3, 41, 7, 90), (2, 5, 1, 1))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for function in (roipool.roi_align, torchvision.roi_align):
        monkeypatch.setattr(function.on_gpu, "kept", KeptCalls())
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as module:
        # The first call of any function finds out whose arrays these are.
        roipool.roi_pool(module.asarray(np.ones((1, 1, 4, 4))), module.asarray(np.zeros((1, 5))), 1)
        driver.launched.clear()
        driver.errors.clear()
        yield module
        assert not driver.errors


def boxes(count: int, images: int, dtype: Any) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(count)
    corners = np.sort(rng.uniform(-3, 40, (count, 2, 2)), axis=1).reshape(count, 4)
    return np.column_stack([np.arange(count) % images, corners]).astype(compute_type(dtype))


def pooled_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    return (5, 5, shape[3]) if layout == "NHWC" else (shape[1], 5, 5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("sampling", [0, 2])
def test_calls_give_the_same_bits(cupy: Any, dtype: Any, layout: Any, sampling: int) -> None:
    """For shapes and numbers of boxes that no call had before, beside the general path."""
    options: dict[str, Any] = {"sampling_ratio": sampling, "layout": layout}
    launches = 0
    for number, (shape, count) in enumerate(itertools.product(SHAPES, (1, 9, 40))):
        rng = np.random.default_rng(number)
        maps = rng.normal(size=shape).astype(dtype)
        maps = np.ascontiguousarray(maps.transpose(0, 2, 3, 1)) if layout == "NHWC" else maps
        arrays = cupy.asarray(maps), cupy.asarray(boxes(count, shape[0], dtype))
        out = cupy.asarray(np.zeros((count, *pooled_shape(maps.shape, layout)), dtype))
        expected = roipool.roi_align(*arrays, 5, **options, out=out).get()
        with cupy.no_reads():
            got = roipool.roi_align(*arrays, 5, **options)
        assert got.get().tobytes() == expected.tobytes(), (shape, count)
        launches += number > 0  # the first call is kept
        assert len(driver.launched) == launches


def test_launches_are_on_the_current_stream_and_device(cupy: Any) -> None:
    maps = cupy.asarray(np.ones((1, 2, 9, 9), np.float32))
    rois = cupy.asarray(boxes(3, 1, np.dtype("float32")))
    calls = [lambda: roipool.roi_align(maps, rois, 2)] * 2
    before = cupy.cuda.get_current_stream
    cupy.cuda.get_current_stream = staticmethod(lambda device: streams.Stream(7))
    try:
        for call in calls:
            call()
    finally:
        cupy.cuda.get_current_stream = before
    assert driver.launched == [(7, "average_forward")]
    with cupy.arrays_on(1):  # the current device is the first: CuPy chooses that of the arrays
        calls[0]()
        with cupy.cuda.Device(1):
            calls[0]()
    assert len(driver.launched) == 2


def test_calls_that_take_the_general_path(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, rois = np.ones((1, 2, 9, 9), np.float32), boxes(3, 1, np.dtype("float32"))
    wide = cupy.asarray(np.ones((1, 2, 9, 18), np.float32))[..., ::2]
    mine, table = cupy.asarray(maps), cupy.asarray(rois)
    expected = roipool.roi_align(mine, table, 2).get()

    def check(features: Any, numbers: Any) -> None:
        got = roipool.roi_align(features, numbers, 2)
        assert np.array_equal(got.get(), expected[: len(numbers)])
        assert driver.launched == []

    check(wide, table)
    check(mine, cupy.asarray(rois.astype(np.float64)))
    check(mine, table[:0])
    check(mine, cupy.asarray(np.repeat(rois, 2, axis=0))[::2])
    roipool.set_debug(True)
    try:
        check(mine, table)
    finally:
        roipool.set_debug(False)
    with streams.capturing() as graph:
        pooled = roipool.roi_align(mine, table, 2)
    graph.launch()
    assert np.array_equal(pooled.get(), expected)
    monkeypatch.setattr(driver, "status", 201)  # no context in this thread
    check(mine, table)
    monkeypatch.setattr(driver, "status", 0)
    with pytest.raises(ValueError, match="rois"):
        roipool.roi_align(mine, table[:, :4], 2)
    assert roipool.roi_align(mine, table, 2).shape == (3, 2, 2, 2)
    assert len(driver.launched) == 1


def test_without_the_driver_nothing_is_kept(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from roipool._cuda import driver as found

    maps, rois = cupy.asarray(np.ones((1, 3, 9, 9), np.float32)), cupy.asarray(np.zeros((2, 5)))
    rois = rois.astype(np.float32)
    with monkeypatch.context() as changed:
        changed.setattr(found, "functions", lambda: None)
        for _ in range(2):
            assert roipool.roi_align(maps, rois, 3, 0.25).shape == (2, 3, 3, 3)
    assert driver.launched == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_indices_are_cut_as_on_the_general_path(cupy: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)
    maps = rng.normal(size=(2, 3, 9, 9)).astype(dtype)
    rois = boxes(7, 2, np.dtype(dtype))
    rois[:, 1:] = [2, 2, 14, 15]
    rois[:, 0] = [0.5, 1.99, -0.5, 1, 2, -1, np.nan]
    mine, table = cupy.asarray(maps), cupy.asarray(rois)
    found = [torchvision.roi_align(mine, table, 2, 0.5, 2).get() for _ in range(2)]
    assert len(driver.launched) == 1
    assert np.array_equal(*found)
    assert found[0][:4].any(axis=(1, 2, 3)).all()
    assert not found[0][4:].any()


def test_the_launcher_is_looked_for_in_the_drivers_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from roipool._cuda import driver as found

    original = found.functions.__wrapped__
    monkeypatch.setattr(found, "LIBRARY", "no-such-library.so.1")
    assert original() is None


def test_calls_enter_no_more_functions_than_the_page_says() -> None:
    root = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
    command = [sys.executable, "benchmarks/cuda_host.py", "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
