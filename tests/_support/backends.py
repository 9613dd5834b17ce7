"""Backends: the same test body runs on NumPy, on CuPy and on the emulator."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import roipool
from roipool.verification.device import OnDevice

GPUS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]

# For tests whose kernels other tests also run on the emulator.
thorough_on_the_emulator = pytest.mark.parametrize(
    "backend",
    ["cpu", pytest.param("emulator", marks=pytest.mark.thorough), *GPUS[1:]],
    indirect=True,
)


# The same for tests with a parameter for the type, of which float32 is kept.
real_dtypes_thorough_on_the_emulator = pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        ("cpu", np.float32),
        ("cpu", np.float64),
        ("emulator", np.float32),
        pytest.param("emulator", np.float64, marks=pytest.mark.thorough),
        pytest.param("cuda", np.float32, marks=pytest.mark.gpu),
        pytest.param("cuda", np.float64, marks=pytest.mark.gpu),
    ],
    indirect=["backend"],
)


class Backend:
    """A library of arrays: `to_device` converts NumPy arrays to it, `to_host` back.

    "emulator" runs the CUDA backend on the CPU: see the package of that name.
    """

    def __init__(self, name: str, everything: bool = False, thorough: bool = False) -> None:
        self.name = name
        self.everything = everything  # whether pytest runs with --everything
        self.thorough = thorough or everything  # or with --thorough

    @property
    def is_gpu(self) -> bool:
        """Whether this is the CUDA backend, on a GPU or on the emulator."""
        return self.name != "cpu"

    @property
    def module(self) -> Any:
        """The module that implements this backend."""
        return importlib.import_module("roipool._cuda.engine" if self.is_gpu else "roipool._cpu")

    @property
    def library(self) -> Any:
        """Roipool's functions on NumPy arrays, computed on this backend."""
        return OnDevice(roipool, self.to_device, self.to_host) if self.is_gpu else roipool

    def float32(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Flush subnormal numbers to 0 if the backend's float32 arithmetic does, as CuPy's."""
        with np.errstate(invalid="ignore"):
            numbers = array.astype(np.float32)
        tiny = np.abs(numbers) < np.finfo(np.float32).tiny
        return np.where(tiny & self.is_gpu, np.copysign(np.float32(0), numbers), numbers)

    def to_device(self, array: Any) -> Any:
        """Convert an array to this backend."""
        if not self.is_gpu:
            return array
        import cupy

        if getattr(array, "dtype", None) == "bfloat16" and cupy.__version__.startswith("13."):
            pytest.skip("CuPy 13 has no bfloat16")
        return cupy.asarray(array)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Convert any array to NumPy."""
        return array.get() if self.is_gpu else np.asarray(array)
