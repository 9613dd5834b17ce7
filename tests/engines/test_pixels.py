"""Averages of few channels side by side: all of a cell are loaded and stored at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.compare import assert_same_bits
from _support.run_python import run_python

import roipool
from roipool import _cpu

RNG = np.random.default_rng(0)
SHAPE = (2, 37, 41)
ROIS = np.column_stack([RNG.integers(0, 2, 8), RNG.uniform(-5, 45, (8, 4))])
ROIS[0] = [1, 0, 0, SHAPE[2], SHAPE[1]]  # reads the last cell of the last image
FRACTIONS = ROIS[:, [2, 1, 4, 3]] / 40
AVERAGES: dict[str, Callable[..., Any]] = {
    "bilinear": lambda maps, size, **more: roipool.crop_and_resize(
        maps, FRACTIONS, ROIS[:, 0], size, extrapolation_value=-2.0, **more
    ),
    "antialias": lambda maps, size, **more: roipool.crop_and_resize(
        maps, FRACTIONS, ROIS[:, 0], size, antialias=True, **more
    ),
    "align": lambda maps, size, **more: roipool.roi_align(maps, ROIS, size, **more),
}
SIZES = [(1, 1), (2, 3), (5, 4), (3, 90), (60, 2)]
each_type = pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8])
each_count = pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])


def pictures(channels: int, dtype: type) -> Any:
    return RNG.integers(0, 128, (*SHAPE, channels)).astype(dtype)


@each_type
@each_count
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("instruction_set", _cpu.instruction_sets())
def test_channels_together_have_the_bits_of_each_alone(
    instruction_set: str, name: str, size: tuple[int, int], channels: int, dtype: type
) -> None:
    chosen, pool, maps = _cpu.instruction_set(), AVERAGES[name], pictures(channels, dtype)
    _cpu.use_instruction_set(instruction_set)
    try:
        pooled = pool(maps, size, layout="NHWC")
        planes = [np.ascontiguousarray(maps[..., channel])[:, None] for channel in range(channels)]
        alone = np.concatenate([pool(plane, size) for plane in planes], axis=1)
    finally:
        _cpu.use_instruction_set(chosen)
    assert_same_bits(pooled, np.ascontiguousarray(alone.transpose(0, 2, 3, 1)))


@each_count
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", AVERAGES)
def test_nothing_is_written_behind_the_result(
    name: str, size: tuple[int, int], channels: int
) -> None:
    maps = pictures(channels, np.uint8)
    expected = AVERAGES[name](maps, size, layout="NHWC")
    memory = np.full(expected.size + 32, 7, np.float32)
    out = memory[16:-16].reshape(expected.shape)
    AVERAGES[name](maps, size, layout="NHWC", out=out)
    assert_same_bits(out, expected)
    assert (memory[:16] == 7).all()
    assert (memory[-16:] == 7).all()


AT_THE_END_OF_MEMORY = """
import ctypes, mmap
import numpy as np
import roipool
from roipool import _cpu

page = mmap.PAGESIZE
for channels, dtype in [(c, d) for c in (1, 2, 3, 4) for d in (np.uint8, np.int8, np.float32)]:
    maps = np.arange(12 * 50 * channels).reshape(1, 12, 50, channels).astype(dtype)
    memory = mmap.mmap(-1, 4 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + 3 * page), page, 0) == 0
    first = 3 * page - maps.nbytes
    here = np.frombuffer(memory, dtype, maps.size, first).reshape(maps.shape)
    here[...] = maps
    for name in _cpu.instruction_sets():
        _cpu.use_instruction_set(name)
        for size in [(1, 1), (3, 4), (30, 80), (4, 50)]:
            for antialias in (False, True):
                given = [[0, 0, 1, 1]], [0], size
                more = {"antialias": antialias, "layout": "NHWC"}
                got = roipool.crop_and_resize(here, *given, **more)
                assert np.array_equal(got, roipool.crop_and_resize(maps, *given, **more))
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects a page of memory")
def test_nothing_is_read_behind_the_maps() -> None:
    assert run_python(AT_THE_END_OF_MEMORY).stdout == "done\n"
