"""An emulator of CuPy and a GPU: compiles the kernel texts as C++ and runs them on the CPU.

``with active():`` replaces the module ``cupy`` by the emulator, and gives roipool a CUDA backend
that uses it. ``_support.simt`` is another way to run kernels on its arrays.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from roipool._arrays import _cupy
from roipool._cuda import driver as cuda_driver

from . import compiler, cupy_module, driver

IMPORTERS = ("roipool._cuda.engine", "roipool._cuda.kept")  # of CuPy

_backend: dict[str, ModuleType] = {}


def why_not() -> str | None:
    """Return the missing requirement, or None."""
    return None if compiler.COMPILER else "the emulator needs POSIX and a C++ compiler (CXX or g++)"


@contextmanager
def active() -> Iterator[ModuleType]:
    """Replace CuPy by the emulator."""
    names = ("cupy", *IMPORTERS)
    saved = {name: sys.modules.pop(name, None) for name in names}
    sys.modules["cupy"] = cupy_module
    for name in IMPORTERS:
        if name in _backend:
            sys.modules[name] = _backend[name]
        else:
            _backend[name] = importlib.import_module(name)
    bound = vars(_cupy).pop("engine", None)
    functions, cuda_driver.functions = cuda_driver.functions, driver.addresses  # type: ignore[assignment]
    try:
        yield cupy_module
    finally:
        cuda_driver.functions = functions
        vars(_cupy).pop("engine", None)
        if bound is not None:
            vars(_cupy)["engine"] = bound
        for name, module in saved.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
