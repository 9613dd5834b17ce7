"""The dtypes of features, what each is computed in, and the dtypes of pooled values."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")
BYTES = ("uint8", "int8")  # of masks and quantised maps
FLOATS_AND_BYTES = (*FLOATS, *BYTES)
INTEGERS = (*BYTES, "uint16", "int16")  # of pictures and scans: float32 holds them exactly
FLOATS_AND_INTEGERS = (*FLOATS, *INTEGERS)

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# The dtypes of pooled values where they are not the features'.
POOLED_DTYPES = {np.dtype(name): _FLOAT32 for name in INTEGERS}


def allowed_dtypes(features: str) -> tuple[str, ...]:
    """Return the dtypes of values pooled from features of a dtype, that of the features first."""
    return (features, *FLOATS) if features in INTEGERS else (features,)


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return a dtype by its name; NumPy knows bfloat16 where ml_dtypes is installed."""
    if name == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(name)


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return ``dtype.name``, which NumPy makes anew, and slowly, each time."""
    return dtype.name


@cache
def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of coordinates and sums: float64 for float64 features, else float32.

    Features may be in any order of bytes.
    """
    return _FLOAT64 if dtype_name(dtype) == "float64" else _FLOAT32
