"""Narrow types in NHWC maps, of which several vectors of channels are read together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.run_cpp import run_cpp

import roipool
from roipool._dtypes import INTEGERS
from roipool.systems.case import dtypes

HALVES = [name for name in ("float16", "bfloat16") if name in dtypes()]
# Fewer than a vector; one, and several of them, with and without a rest; more than a block.
CHANNELS = (7, 16, 32, 37, 51, 256, 275)
ROIS = np.array(
    [[0, -3, -2, 9, 8], [1, 1, 2, 4, 3], [0, 5, 5, 5.5, 40], [1, -9, 0, -5, 3], [1, 0, 0, 11, 9]]
)
CALLS: dict[str, Any] = {
    "roi_align": lambda maps, layout: roipool.roi_align(maps, ROIS, (3, 2), 0.8, layout=layout),
    "one sample": lambda maps, layout: roipool.roi_align(maps, ROIS, 2, 1.0, 1, layout=layout),
    "maxima of cells": lambda maps, layout: roipool.roi_pool(maps, ROIS, 3, layout=layout),
    "maxima of samples": lambda maps, layout: roipool.roi_align(
        maps, ROIS, 2, sampling_ratio=2, mode="max", layout=layout
    ),
    "whole cells": lambda maps, layout: roipool.roi_average_pool(maps, ROIS, 3, layout=layout),
    "rotated": lambda maps, layout: roipool.roi_align_rotated(
        maps, np.insert(ROIS, 5, 0.7, axis=1), 2, layout=layout
    ),
    "moved bins": lambda maps, layout: roipool.deform_roi_pool(
        maps, ROIS, offsets(layout), output_size=2, layout=layout
    ),
}
# Which take integers.
OF_INTEGERS = ("roi_align", "one sample", "maxima of cells", "maxima of samples")


def offsets(layout: str) -> np.ndarray[Any, Any]:
    """Return offsets of 2 x 2 bins."""
    moved = np.random.default_rng(1).uniform(-1, 1, (len(ROIS), 2, 2, 2)).astype(np.float32)
    return np.ascontiguousarray(moved.transpose(0, 2, 3, 1)) if layout == "NHWC" else moved


def maps_of(dtype: str, channels: int) -> np.ndarray[Any, Any]:
    """Return maps with subnormal numbers, infinities and NaN, of those that the type has."""
    rng = np.random.default_rng(0)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, (2, 9, 11, channels)).astype(dtype)
    kind = dtypes()[dtype]
    maps = rng.standard_normal((2, 9, 11, channels)).astype(kind)
    bits = maps.view(np.uint16).reshape(-1)
    places = rng.integers(0, bits.size, 40)
    bits[places[:20]] = rng.integers(0, 2**16, 20)
    bits[places[20:30]] = rng.integers(1, 8, 10)
    return maps


def same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Assert that numbers are the same but for the bits of NaN."""
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CALLS)
def test_averages_are_those_of_float32_rounded_once(
    name: str, dtype: str, channels: int, threads: int
) -> None:
    before = roipool.get_num_threads()
    roipool.set_num_threads(threads)
    try:
        maps = maps_of(dtype, channels)
        found = CALLS[name](maps, "NHWC")
        with np.errstate(all="ignore"):
            same(found, CALLS[name](maps.astype(np.float32), "NHWC").astype(maps.dtype))
        np.testing.assert_array_equal(np.isnan(found), np.isnan(CALLS[name](maps, "NHWC")))
    finally:
        roipool.set_num_threads(before)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_averages_of_integers_are_those_of_float32(name: str, dtype: str, channels: int) -> None:
    maps = maps_of(dtype, channels)
    same(CALLS[name](maps, "NHWC"), CALLS[name](maps.astype(np.float32), "NHWC"))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_are_those_of_float32_rounded_once(
    dtype: str, channels: int, threads: int
) -> None:
    before = roipool.get_num_threads()
    roipool.set_num_threads(threads)
    try:
        grad = np.random.default_rng(2).standard_normal((len(ROIS), 3, 2, channels))
        grad = grad.astype(dtypes()[dtype])
        for shape in ((2, 9, 11, channels), (2, 300, 11, channels)):
            options: dict[str, Any] = {"spatial_scale": 0.8, "layout": "NHWC"}
            found = roipool.roi_align_backward(grad, ROIS, shape, **options)
            wide = roipool.roi_align_backward(grad.astype(np.float32), ROIS, shape, **options)
            same(found, wide.astype(grad.dtype))
    finally:
        roipool.set_num_threads(before)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_of_maxima_are_those_of_float32_rounded_once(dtype: str, channels: int) -> None:
    maps = maps_of(dtype, channels)
    wide = maps.astype(np.float32)
    options: dict[str, Any] = {"layout": "NHWC"}
    pooled, argmax = roipool.roi_pool(maps, ROIS, 3, return_argmax=True, **options)
    np.testing.assert_array_equal(
        argmax, roipool.roi_pool(wide, ROIS, 3, return_argmax=True, **options)[1]
    )
    grad = np.random.default_rng(2).standard_normal(pooled.shape).astype(maps.dtype)
    found = roipool.roi_pool_backward(grad, argmax, ROIS, maps.shape, **options)
    expected = roipool.roi_pool_backward(
        grad.astype(np.float32), argmax, ROIS, maps.shape, **options
    )
    same(found, expected.astype(maps.dtype))


EVERY_VALUE = r"""
#pragma GCC diagnostic ignored "-Wpsabi"
#include <cmath>
#include <cstdio>
#define ROIPOOL_ENGINE shared
#include "cpu/lanes.h"
using namespace roipool;
using namespace roipool::shared;

template <typename Narrow>
void compare(const char* name) {
  const int count = 1 << 8 * sizeof(Narrow);
  int same = 0;
  for (int first = 0; first < count; first += 16) {
    Narrow numbers[16];
    for (int i = 0; i < 16; ++i) {
      const int bits = first + i;
      memcpy(&numbers[i], &bits, sizeof(Narrow));
    }
    const FloatLanes lanes = load<FloatLanes>(numbers);
    for (int i = 0; i < 16; ++i) {
      const float found = lanes[i], expected = compute_value(numbers[i]);
      same += std::isnan(expected) ? std::isnan(found) : !memcmp(&found, &expected, sizeof(float));
    }
  }
  std::printf("%s %d\n", name, same);
}

int main() {
  compare<Float16>("float16");
  compare<Bfloat16>("bfloat16");
  compare<uint8_t>("uint8");
  compare<int8_t>("int8");
}
"""


def test_every_number_is_converted_as_a_single_one(tmp_path: Path) -> None:
    expected = "float16 65536\nbfloat16 65536\nuint8 256\nint8 256\n"
    assert run_cpp(EVERY_VALUE, tmp_path) == expected


LARGE_MAP = r"""
#pragma GCC diagnostic ignored "-Wpsabi"
#include <cstdio>
#define ROIPOOL_ENGINE shared
#include "cpu/schedule.h"
using namespace roipool;
using namespace roipool::shared;

int main() {
  for (int side : {1000, 2500}) {
    for (int storage = 0; storage < 4; ++storage) {
      for (int is_maximum = 0; is_maximum < 2; ++is_maximum) {
        // Boxes of a whole NHWC map of 256 channels.
        Job job = {};
        int first[4] = {0, 0, 0, 0}, last[4] = {side, side, side, side};
        wide_int order[4] = {0, 1, 2, 3}, begin[2] = {0, 4};
        job.storage = static_cast<Storage>(storage);
        job.channels_last = true;
        job.images = 1, job.channels = 256, job.boxes = 4;
        job.rows.size = job.columns.size = side;
        job.rows.bins = job.columns.bins = 7;
        job.rows.window_first = job.columns.window_first = first;
        job.rows.window_last = job.columns.window_last = last;
        job.box_order = order, job.image_begin = begin;
        job.chunk = {0, 4, true, true};
        schedule_forward(job, 1, is_maximum);
        std::printf("%d", job.narrow);
      }
    }
  }
}
"""


def test_channels_of_a_large_map_are_computed_together(tmp_path: Path) -> None:
    """No more of its vectors are copied than scratch memory holds, and none that lie in place."""
    assert run_cpp(LARGE_MAP, tmp_path) == "0" * 16
