"""How close is close enough: roundings of the computing type, and one of the storing type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Stored bits of the significand and the least normal exponent of the types that are only stored.
_STORED = {"float16": (10, -14), "bfloat16": (7, -126)}
TINY_PRODUCTS = 16  # that may be added up for one number


@dataclass(frozen=True)
class Comparison:
    """How numbers compare with expected ones.

    Attributes
    ----------
    count, equal, wrong : int
        How many numbers were compared, are equal, and are further apart than is allowed.
    worst : float
        The greatest error of computing, as a part of what is allowed: more than 1 where one is
        wrong. The rounding of a type that only stores numbers is left out of both.
    problem : str or None
        What is wrong, if something is.
    """

    count: int
    equal: int
    wrong: int
    worst: float
    problem: str | None


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
    """Compare numbers with exact ones.

    Parameters
    ----------
    got : ndarray
        What the library computed.
    expected : ndarray of float64
        The same, without rounding. NaN and infinities must agree.
    terms : ndarray of float64 or float
        Sum of the absolute values of the terms that were added up for each number.
    ulps : float
        Roundings of the computing type allowed, each relative to `terms`.
    roundings : int
        Roundings of a type that only stores numbers, half a step each: 2 where `expected` comes
        from such a type too.
    more : ndarray of float64 or float
        What is allowed besides.

    Returns
    -------
    Comparison
    """
    if got.shape != expected.shape:
        return _nothing_right(got.size, f"shape {got.shape}", f"{expected.shape}")
    finite = np.isfinite(expected)
    if got.dtype == np.float64:
        ulps *= 4  # what is expected was itself added up in float64, sample by sample
    real = np.finfo(compute_type(got.dtype))
    # Products as small as the type's smallest number, too: their roundings are no part of them.
    tiny = TINY_PRODUCTS * float(real.smallest_subnormal)
    computing = ulps * (real.eps * np.where(finite, terms, 0.0) + tiny) + more
    storing = np.zeros_like(computing)
    if got.dtype.name in _STORED and roundings:
        wanted = np.where(finite, np.abs(expected), 0.0)
        storing = roundings * half_a_step(wanted + computing, got.dtype)
    numbers = got.astype(np.float64)
    same = (numbers == expected) | (np.isnan(numbers) & np.isnan(expected))
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
    """Compare types, shapes and contents, NaN for NaN, signs of zeros apart."""
    if got.dtype != expected.dtype:
        return _nothing_right(got.size, f"dtype {got.dtype}", f"{expected.dtype}")
    wide = expected.astype(np.float64)  # places in maps and numbers of samples are below 2**53
    return compare(got, wide, 0.0, roundings=0)
