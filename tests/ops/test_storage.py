"""float16 and bfloat16: every number comes in exactly and goes out rounded once, ties to even."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.catalogue import Array, every_layout, half_dtypes, in_layout
from _support.loops import each
from _support.run_cpp import output_of_cpp

import roipool


def every_number(dtype: np.dtype[Any]) -> Array:
    """Return all 65536 numbers of a half type as (1, 1, 256, 256)."""
    return np.arange(2**16, dtype=np.uint16).view(dtype).reshape(1, 1, 256, 256)


def as_float(array: Array) -> Array:
    """Convert half-precision numbers exactly to float32, with a single NaN."""
    with np.errstate(invalid="ignore"):
        return array.astype(np.float32)


def test_bfloat16_can_be_tested() -> None:
    pytest.importorskip("ml_dtypes", reason="no test covers bfloat16: it needs ml_dtypes")


# Calls that return every cell unchanged: one cell per bin, read with weight 1.
WHOLE = np.array([[0, 0, 0, 255, 255]])
WHOLE_ALIGNED = np.array([[0, 0, 0, 256, 256]])
IDENTITIES: dict[str, Callable[..., Any]] = {
    "average": lambda maps, layout: roipool.roi_align(
        maps, WHOLE_ALIGNED, 256, 1.0, 1, layout=layout
    ),
    "bilinear crop": lambda maps, layout: roipool.crop_and_resize(
        maps, np.array([[0.0, 0, 1, 1]]), np.array([0]), 256, layout=layout
    ),
    "nearest crop": lambda maps, layout: roipool.crop_and_resize(
        maps, np.array([[0.0, 0, 1, 1]]), np.array([0]), 256, method="nearest", layout=layout
    ),
    "average gradient": lambda grad, layout: roipool.roi_align_backward(
        grad, WHOLE_ALIGNED, grad.shape, 1.0, 1, layout=layout
    ),
}


@each(channels=[1, 16])
@every_layout
@half_dtypes
@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_number_passes(identity: str, dtype: Any, layout: str, channels: int) -> None:
    numbers = every_number(dtype)
    maps = in_layout(np.repeat(numbers, channels, axis=1), layout)
    got = IDENTITIES[identity](maps, layout)
    assert got.dtype == dtype
    np.testing.assert_array_equal(as_float(got), as_float(maps))


@each(channels=[1, 16])
@half_dtypes
def test_every_number_passes_maxima(dtype: Any, channels: int) -> None:
    numbers = np.repeat(every_number(dtype), channels, axis=1)
    cells = as_float(numbers)
    got, argmax = roipool.roi_pool(numbers, WHOLE, 256, return_argmax=True)
    nothing = np.isnan(cells) | (cells == -np.inf)  # neither is above where a maximum starts
    np.testing.assert_array_equal(as_float(got), np.where(nothing, -np.inf, cells))
    places = np.arange(2**16).reshape(1, 1, 256, 256)
    np.testing.assert_array_equal(argmax, np.where(nothing, -1, places))
    back = roipool.roi_pool_backward(numbers, argmax, WHOLE, numbers.shape)
    np.testing.assert_array_equal(as_float(back), np.where(nothing, 0, cells))


CONVERSIONS = """
#include <cstdint>
#include <cstdio>
#include <cstring>
#define ROIPOOL_ENGINE tested
#include "cpu/storage.h"

using namespace roipool::tested;

// Each float32 whose low bits are near a rounding, of every sign, exponent and high fraction.
int main() {
  const uint32_t lows[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
  for (uint32_t high = 0; high < 1u << 19; ++high)
    for (uint32_t low : lows) {
      const uint32_t bits = high << 13 | low;
      float value;
      std::memcpy(&value, &bits, 4);
      Float16 half;
      store_value(value, &half);
      std::fwrite(&half.bits, 2, 1, stdout);
    }
}
"""


def test_every_float_is_stored_as_numpy_stores_it(tmp_path: Path) -> None:
    """Including NaN with any payload; NaN with only low bits must not become infinity."""
    actual = np.frombuffer(output_of_cpp(CONVERSIONS, tmp_path), np.uint16).view(np.float16)
    lows = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    floats = (np.arange(2**19, dtype=np.uint32)[:, None] << 13 | lows).view(np.float32).ravel()
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        expected = floats.astype(np.float16)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


def pairs(dtype: Any) -> tuple[Array, Array]:
    """Return pairs of neighbouring numbers of all magnitudes, and numbers with random bits."""
    bits = np.arange(2**16, dtype=np.uint16)
    rng = np.random.default_rng(0)
    others = rng.integers(0, 2**16, (3, 2**16)).astype(np.uint16)
    first = np.concatenate([bits, bits, bits, bits, bits])
    second = np.concatenate([bits + np.uint16(1), bits ^ np.uint16(0x8000), *others])
    return first.view(dtype), second.view(dtype)


@thorough_on_the_emulator
@each(channels=[1, 16])
@half_dtypes
def test_means_of_two_are_rounded_to_even(backend: Backend, dtype: Any, channels: int) -> None:
    first, second = pairs(dtype)
    maps = np.stack([first, second], axis=1).reshape(1, 1, -1, 2)
    maps = np.repeat(maps, channels, axis=1)
    # One sample in the middle of two cells; float32 holds the mean of two half numbers exactly
    # unless they are far apart, and then it rounds to odd or even like NumPy.
    height = maps.shape[2]
    got = roipool.roi_align(
        backend.to_device(maps),
        backend.to_device(np.array([[0, 0.5, 0, 1.5, height]])),
        (height, 1),
        1.0,
        1,
    )
    with np.errstate(all="ignore"):
        first, second = (
            backend.float32(half) * np.float32(0.5) for half in (maps[..., :1], maps[..., 1:])
        )
        first = backend.float32(first)  # the second is multiplied and added in one step
        expected = as_float(backend.float32(first + second).astype(dtype))
    np.testing.assert_array_equal(as_float(backend.to_host(got)), expected)


@half_dtypes
def test_sums_are_rounded_once(backend: Backend, dtype: Any) -> None:
    # 1 + 2^-14 a hundred times: each addition is lost in a half type, not in float32.
    count, small = 100, 2.0**-14
    grad = np.full((count + 1, 1, 1, 1), small)
    grad[0] = 1
    rois = np.tile([0, 0, 0, 1, 1], (count + 1, 1)).astype(np.float64)
    got = roipool.roi_align_backward(
        backend.to_device(grad.astype(dtype)), backend.to_device(rois), (1, 1, 1, 1), 1.0, 1
    )
    expected = np.array([[[[1 + count * small]]]]).astype(dtype)
    assert expected != 1
    np.testing.assert_array_equal(as_float(backend.to_host(got)), as_float(expected))


@half_dtypes
def test_sums_too_large_for_the_type_are_infinite(backend: Backend, dtype: Any) -> None:
    grad = np.full((2, 1, 1, 1), np.nextafter(dtype.type(np.inf), dtype.type(0)))
    rois = np.tile([0, 0, 0, 1, 1], (2, 1)).astype(np.float64)
    got = roipool.roi_align_backward(
        backend.to_device(grad), backend.to_device(rois), (1, 1, 1, 1), 1.0, 1
    )
    assert got.dtype == dtype
    np.testing.assert_array_equal(as_float(backend.to_host(got)), np.inf)
