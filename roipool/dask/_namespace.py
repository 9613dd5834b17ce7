"""NumPy's namespace for calls on Dask arrays: NumPy's functions hand those to ``dask.array``.

Only what that lacks, or would warn of, is written here.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np


def __getattr__(name: str) -> Any:
    """Return a function of NumPy."""
    return getattr(np, name)


def take_along_axis(values: Any, places: Any, axis: int) -> Any:
    """Return `numpy.take_along_axis` of a Dask array, for known places in each row."""
    return _by_rows(np.take_along_axis, values, places, axis=axis)


def multiply(values: Any, weights: Any, out: Any = None) -> Any:
    """Return a Dask array times known weights, without a warning of what is not finite."""
    return _by_rows(_product, values, weights)


def _by_rows(function: Any, values: Any, table: Any, **options: Any) -> Any:
    """Return a function of the rows of a Dask array, and of those of an array of NumPy's."""
    rows = da.from_array(table, chunks=(values.chunks[0], *table.shape[1:]))
    whole = values.rechunk(dict.fromkeys(range(1, values.ndim), -1))
    return da.map_blocks(function, whole, rows, dtype=values.dtype, **options)


def _product(values: Any, weights: Any) -> Any:
    with np.errstate(all="ignore"):
        return values * weights
