"""How close is close enough, as assertions; and the sums of terms that say so."""

from __future__ import annotations

import numpy as np

from roipool.verification.tolerance import Array, compare, compare_bits, compute_type

__all__ = ["Array", "apart", "assert_close", "assert_same_bits", "beside", "compute_type"]


def assert_close(
    got: Array, expected: Array, terms: Array | float, ulps: float = 4, roundings: int = 1
) -> None:
    """Check numbers against exact ones; see `roipool.verification.tolerance.compare`."""
    problem = compare(got, expected, terms, ulps, roundings).problem
    if problem:
        raise AssertionError(problem)


def assert_same_bits(got: Array, expected: Array) -> None:
    """Check that two arrays are of one type, shape and content, NaN for NaN, zeros' signs apart."""
    problem = compare_bits(got, expected).problem
    if problem:
        raise AssertionError(problem)


def beside(values: Array, sizes: Array) -> Array:
    """Return arrays as one, side by side in the channels: the oracle then finds samples once."""
    return np.concatenate([values, sizes], axis=1)


def apart(both: Array) -> list[Array]:
    """Return the two halves of the channels."""
    return np.split(both, 2, axis=1)
