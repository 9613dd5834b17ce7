"""Compares the results of two libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TOLERANCES", "Agreement", "agreement"]

# The largest difference that counts as agreement, relative to the largest value.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Agreement:
    """The difference of a library's results to roipool's.

    Attributes
    ----------
    greatest : float
        The largest difference; infinite if only one of the results has a NaN.
    limit : float
        The largest difference allowed: the type's tolerance times the largest value.
    beyond : float
        Fraction of the values that differ by more.
    """

    greatest: float
    limit: float
    beyond: float

    @property
    def holds(self) -> bool:
        """Whether every difference is within the limit."""
        return self.greatest <= self.limit


def agreement(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> Agreement:
    """Compare results level by level; NaN agrees with NaN.

    Parameters
    ----------
    ours, theirs : sequence of ndarray
        The same number of arrays with the same shapes. The type of `ours` sets the tolerance.

    Returns
    -------
    Agreement
        The agreement over all levels.

    Raises
    ------
    ValueError
        If shapes differ.
    """
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            raise ValueError(f"gives an array of shape {other.shape}, not {one.shape}")
    highest = max((_greatest(np.abs(_wide(array))) for array in ours), default=0.0)
    limit = max((TOLERANCES[array.dtype.name] for array in ours), default=0.0) * highest
    greatest, beyond, count = 0.0, 0, 0
    for one, other in zip(ours, theirs, strict=True):
        apart = np.abs(_wide(one) - _wide(other))
        apart[np.isnan(one) & np.isnan(other)] = 0
        apart[np.isnan(apart)] = np.inf
        greatest = max(greatest, _greatest(apart))
        beyond += int(np.count_nonzero(apart > limit))
        count += apart.size
    return Agreement(greatest, limit, beyond / max(count, 1))


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    """Convert half types to float32."""
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _greatest(values: NDArray[Any]) -> float:
    return float(np.nanmax(values)) if values.size and not np.isnan(values).all() else 0.0
