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
from roipool._arrays import is_array


def backend_of(**arrays: Any) -> ModuleType:
    """Return the backend for arrays given by argument name.

    Raises
    ------
    TypeError
        If the arrays are of two kinds; the message says which is where.
    ValueError
        If they are on two GPUs.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return _cpu
    on_gpu: dict[str, Any] = {}
    on_cpu = []
    for name, array in arrays.items():
        if isinstance(array, cupy.ndarray):
            on_gpu[name] = array
        elif isinstance(array, (list, tuple)):
            parts = [part for part in array if isinstance(part, cupy.ndarray)]
            if parts and is_array(array[0]):
                on_gpu[name] = parts
            if not parts or len(parts) < len(array):
                on_cpu.append(name)
        elif array is not None:
            on_cpu.append(name)
    if not on_gpu:
        return _cpu
    if on_cpu:
        raise TypeError(
            f"arrays must all be NumPy or all be CuPy: {', '.join(on_gpu)} is on the GPU, "
            f"{', '.join(on_cpu)} is not"
        )
    devices = {name: _devices(array) for name, array in on_gpu.items()}
    if len(set().union(*devices.values())) > 1:
        places = ", ".join(
            f"{name} on {' and '.join(map(str, sorted(found)))}" for name, found in devices.items()
        )
        raise ValueError(f"arrays must all be on one GPU, got {places}")
    return sys.modules.get("roipool._cuda") or importlib.import_module("roipool._cuda")


def _devices(array: Any) -> set[int]:
    parts = array if isinstance(array, list) else [array]
    return {part.device.id for part in parts}
