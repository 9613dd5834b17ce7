"""Array type to backend.

A backend is a module with agreed function names, those of ``_cpu``. The array's type chooses, never
the machine, and no framework is imported that the caller has not imported.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from roipool import _cpu
from roipool._arrays import is_array, is_cupy


def backend_of(**arrays: Any) -> ModuleType:
    """Return the backend for arrays given by argument name.

    Raises
    ------
    TypeError
        If the arrays are of two kinds; the message says which is where.
    ValueError
        If they are on two GPUs.
    """
    if "cupy" not in sys.modules:
        return _cpu
    on_gpu = [name for name, array in arrays.items() if _is_on_gpu(array)]
    if not on_gpu:
        return _cpu
    on_cpu = [name for name, array in arrays.items() if _is_elsewhere(array)]
    if on_cpu:
        raise TypeError(
            f"arrays must all be NumPy or all be CuPy: {', '.join(on_gpu)} is on the GPU, "
            f"{', '.join(on_cpu)} is not"
        )
    devices = {name: _device(arrays[name]) for name in on_gpu}
    if len(set(devices.values())) > 1:
        places = ", ".join(f"{name} on {number}" for name, number in devices.items())
        raise ValueError(f"arrays must all be on one GPU, got {places}")
    return importlib.import_module("roipool._cuda")


def _is_on_gpu(array: Any) -> bool:
    """Return whether an argument is a CuPy array, or a sequence of arrays that holds one."""
    if not isinstance(array, (list, tuple)):
        return is_cupy(array)
    return bool(array) and is_array(array[0]) and any(map(is_cupy, array))


def _is_elsewhere(array: Any) -> bool:
    """Return whether an argument, or a part of one, is no CuPy array."""
    if not isinstance(array, (list, tuple)):
        return array is not None and not is_cupy(array)
    return not array or not all(map(is_cupy, array))


def _device(array: Any) -> int:
    return int((array[0] if isinstance(array, (list, tuple)) else array).device.id)
