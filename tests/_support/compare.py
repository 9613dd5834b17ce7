"""Assertions on numbers, and helpers to compute their sums of absolute terms."""

from __future__ import annotations

import numpy as np

from roipool.verification.tolerance import Array, compare, compare_bits, compute_type

__all__ = ["Array", "apart", "assert_close", "assert_same_bits", "beside", "compute_type"]


def assert_close(
    got: Array, expected: Array, terms: Array | float, ulps: float = 4, roundings: int = 1
) -> None:
    """Check numbers against exact numbers; see `roipool.verification.tolerance.compare`."""
    problem = compare(got, expected, terms, ulps, roundings).problem
    if problem:
        raise AssertionError(problem)


def assert_same_bits(got: Array, expected: Array) -> None:
    """Check that types, shapes and values are equal; NaN equals NaN, and 0.0 equals -0.0."""
    problem = compare_bits(got, expected).problem
    if problem:
        raise AssertionError(problem)


def beside(values: Array, sizes: Array) -> Array:
    """Concatenate arrays along the channels, so that the oracle computes samples once for both."""
    return np.concatenate([values, sizes], axis=1)


def apart(both: Array) -> list[Array]:
    """Split the channels into two halves."""
    return np.split(both, 2, axis=1)
