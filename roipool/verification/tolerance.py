"""Tolerances: roundings of the computing type, and one of the storing type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool._dtypes import INTEGERS

Array = NDArray[Any]

# Types that only store numbers: stored bits of the significand, and the least normal exponent.
# Whole numbers are one apart, as the subnormal numbers of such a type are.
_STORED = {"float16": (10, -14), "bfloat16": (7, -126), **dict.fromkeys(INTEGERS, (0, 0))}
TINY_PRODUCTS = 16  # subnormal products that may be added up for one number


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing numbers with expected numbers."""

    # Numbers that were compared, are equal, and differ by more than the tolerance.
    count: int
    equal: int
    wrong: int
    # The largest error of computing, as a fraction of its tolerance: above 1 if a number is wrong.
    # The rounding to a type that only stores numbers is excluded from both.
    worst: float
    problem: str | None  # description of the largest error, if a number is wrong


def compute_type(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """Return the type of coordinates and sums for maps of `dtype`."""
    return np.float64 if dtype == np.float64 else np.float32


def half_a_step(size: Array, dtype: np.dtype[Any]) -> Array:
    """Return the largest error of rounding numbers of this size to float16 or bfloat16."""
    bits, least_exponent = _STORED[dtype.name]
    exponent = np.frexp(size)[1] - 1
    return np.ldexp(0.5, np.maximum(exponent, least_exponent) - bits)


def compare(
    got: Array,
    expected: Array,
    terms: Array | float,
    ulps: float = 4,
    roundings: int = 1,
    more: Array | float = 0.0,
) -> Comparison:
    """Compare computed numbers with exact numbers.

    Parameters
    ----------
    expected : ndarray of float64
        The exact result. NaN and infinities must agree.
    terms : ndarray of float64 or float
        For each number, the sum of the absolute values of its terms.
    ulps : float
        Roundings of the computing type allowed, each relative to `terms`.
    roundings : int
        Roundings to a type that only stores numbers, half a step each: 2 if `expected` was rounded
        to such a type, too.
    more : ndarray of float64 or float
        Additional error allowed.
    """
    if got.shape != expected.shape:
        return _nothing_right(got.size, f"shape {got.shape}", f"{expected.shape}")
    numbers = got.astype(np.float64)
    same = (numbers == expected) | (np.isnan(numbers) & np.isnan(expected))
    if same.all():  # as most results are: the tolerances need not be computed
        return Comparison(got.size, got.size, 0, 0.0, None)
    finite = np.isfinite(expected)
    if got.dtype == np.float64:
        ulps *= 4  # the expected value was itself summed in float64, sample by sample
    real = np.finfo(compute_type(got.dtype))
    # Rounding errors of subnormal products are absolute, not relative to their size.
    tiny = TINY_PRODUCTS * float(real.smallest_subnormal)
    computing = ulps * (real.eps * np.where(finite, terms, 0.0) + tiny) + more
    storing = np.zeros_like(computing)
    if got.dtype.name in _STORED and roundings:
        wanted = np.where(finite, np.abs(expected), 0.0)
        storing = roundings * half_a_step(wanted + computing, got.dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = np.abs(numbers - expected)
        part = np.where(same | (error <= storing), 0.0, (error - storing) / computing)
    part = np.where(np.isnan(part), np.inf, part)
    wrong = int(np.count_nonzero(part > 1))
    problem = None
    if wrong:
        place = tuple(int(axis) for axis in np.unravel_index(np.argmax(part), part.shape))
        problem = (
            f"{wrong} of {part.size} numbers are off; at {place}: got {float(numbers[place])!r}, "
            f"expected {float(expected[place])!r}, allowed {(computing + storing)[place]:.3g}"
        )
    equal = int(np.count_nonzero(same))
    return Comparison(part.size, equal, wrong, float(part.max(initial=0.0)), problem)


def _nothing_right(count: int, got: str, expected: str) -> Comparison:
    return Comparison(count, 0, count, np.inf, f"got {got}, expected {expected}")


def compare_bits(got: Array, expected: Array) -> Comparison:
    """Compare types, shapes and values; NaN equals NaN, and 0.0 equals -0.0."""
    if got.dtype != expected.dtype:
        return _nothing_right(got.size, f"dtype {got.dtype}", f"{expected.dtype}")
    wide = expected.astype(np.float64)  # indices of cells and samples are below 2**53
    return compare(got, wide, 0.0, roundings=0)
