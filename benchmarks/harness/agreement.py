"""Whether two libraries give the same results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TOLERANCES", "Agreement", "agreement"]

# The greatest difference that counts as agreement, relative to the greatest value.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Agreement:
    """How far a library's results lie from roipool's.

    Attributes
    ----------
    greatest : float
        Greatest difference; infinite where one has a NaN and the other has not.
    limit : float
        What it may be: the type's tolerance times the greatest value.
    beyond : float
        Share of the values that differ by more.
    """

    greatest: float
    limit: float
    beyond: float

    @property
    def holds(self) -> bool:
        """Whether every difference is within the limit."""
        return self.greatest <= self.limit


def agreement(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> Agreement:
    """Compare results level by level; a NaN agrees with a NaN.

    Parameters
    ----------
    ours, theirs : sequence of ndarray
        The same number of arrays with the same shapes. The type of ours sets the tolerance.

    Returns
    -------
    Agreement
        Of all levels together.

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
    """Half types are compared as float32."""
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _greatest(values: NDArray[Any]) -> float:
    return float(np.nanmax(values)) if values.size and not np.isnan(values).all() else 0.0
