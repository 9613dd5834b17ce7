"""Front ends: packages of roipool that serve the arrays of a library with gradients of its own.

A front end is a module with a function ``call(function, args, kwargs)``, which computes a public
function of ``roipool`` or ``roipool.compat`` because its library differentiates, traces or batches
calls. An array's type chooses it, by the name of the module that defines the type, so that no
library is imported that the caller has not imported. Arrays of any other library that hand over
their memory go through NumPy or CuPy.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from roipool import _dlpack, _docstrings
from roipool._arrays import LIBRARY_OF, NUMPY
from roipool._cpu import KeptCalls
from roipool._errors import kind_of
from roipool._kept import SmallCalls, compute_and_keep

# Where the types of a library's arrays are defined, and the package here that serves them.
_PACKAGES = {
    ("torch", "Tensor"): "roipool.torch",
    ("torch", "Proxy"): "roipool.torch._fx",
    ("dask", "Array"): "roipool.dask",
    ("jax", "Tracer"): "roipool.jax",
    ("jaxlib", "ArrayImpl"): "roipool.jax",
    ("jax", "ArrayImpl"): "roipool.jax",
}

# Types of arrays on a GPU whose calls are computed here, and kept: those of CuPy. A cache, too.
_on_gpu: set[type] = set()

# Libraries that trace calls: within a trace nothing can be imported.
_TRACING = ("jax", "jaxlib", "torch")

_NOT_GIVEN = object()
# A cache, which two threads may both fill; None: NumPy's, CuPy's or no array at all.
_by_type: dict[type, ModuleType | None] = {np.ndarray: None, int: None, float: None, str: None}

Function = TypeVar("Function", bound=Callable[..., Any])


def by_front_end(function: Function, *, takes_sequences: bool = False) -> Function:
    """Let a public operation be computed by the front end of its arrays, where they have one.

    If the first argument is a NumPy or CuPy array, no other library is looked up.
    ``common_library`` finds what does not belong beside it. `takes_sequences` says that the first
    argument may be a list or tuple.
    """
    first = next(iter(inspect.signature(function).parameters))

    def check_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        value = args[0] if args else kwargs.get(first, _NOT_GIVEN)
        if not (takes_sequences and isinstance(value, (list, tuple))):
            _check_is_array(first, value)

    return _by_front_end(function, check_first)


def for_every_array(function: Function) -> Function:
    """Like `by_front_end`, for functions that check their arguments by themselves."""
    return _by_front_end(function, None)


def _by_front_end(
    function: Function, check_first: Callable[[tuple[Any, ...], dict[str, Any]], None] | None
) -> Function:
    kept = KeptCalls()
    _docstrings.complete(function)
    on_gpu = SmallCalls(function)

    @functools.wraps(function)
    def operation(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is np.ndarray:
            found = kept.result(args, kwargs)
            return compute_and_keep(function, kept, args, kwargs)[0] if found is None else found
        if args and (type(args[0]) in _on_gpu or _is_pyramid_on_gpu(args[0])):
            return on_gpu(args, kwargs)
        front_end = _front_end_among(args) or _front_end_among(kwargs.values())
        if front_end is not None:
            return front_end.call(function, args, kwargs)
        if check_first is not None:
            check_first(args, kwargs)
        return function(*args, **kwargs)

    operation.kept, operation.on_gpu = kept, on_gpu  # type: ignore[attr-defined]  # for tests
    return operation  # type: ignore[return-value]


def _is_pyramid_on_gpu(maps: Any) -> bool:
    """Return whether these are several of CuPy's arrays."""
    return type(maps) in (list, tuple) and bool(maps) and type(maps[0]) in _on_gpu


def by_front_end_of_sequences(function: Function) -> Function:
    """Like `by_front_end`, for operations whose first argument may be a list or tuple."""
    return by_front_end(function, takes_sequences=True)


def _check_is_array(name: str, value: Any) -> None:
    if value is not _NOT_GIVEN and LIBRARY_OF[type(value)] is None:
        raise TypeError(f"{name} must be {_dlpack.ACCEPTED}; got {kind_of(name, value)}")


def _front_end_among(values: Iterable[Any]) -> ModuleType | None:
    for value in values:
        array_type = type(value)
        if array_type is list or array_type is tuple:
            array_type = type(value[0]) if value else int
        elif isinstance(value, dict):
            array_type = type(next(iter(value.values()), 0))
        if array_type is list or array_type is tuple:  # rows of numbers; others may hold arrays
            continue
        front_end = _by_type[array_type] if array_type in _by_type else _find(array_type)
        if front_end is not None:
            return front_end
    return None


def _find(array_type: type) -> ModuleType | None:
    for base in array_type.__mro__:
        package = _PACKAGES.get((base.__module__.partition(".")[0], base.__name__))
        if package is not None:
            _by_type[array_type] = _by_type.get(base) or importlib.import_module(package)
            return _by_type[array_type]
    if LIBRARY_OF[array_type] is None and _dlpack.is_exchangeable(array_type):
        _by_type[array_type] = _dlpack
    else:
        _by_type[array_type] = None
        if LIBRARY_OF[array_type] not in (None, NUMPY):  # nor are subclasses of NumPy's kept
            _on_gpu.add(array_type)
    return _by_type[array_type]


def serve(array_types: Iterable[type], package: str) -> None:
    """Let a front end serve arrays of these types; it says so itself, when it is imported."""
    _by_type.update(dict.fromkeys(array_types, sys.modules[package]))


def load_front_ends() -> None:
    """Import the front ends of tracing libraries that are imported already."""
    for (library, _), package in _PACKAGES.items():
        if library in _TRACING and library in sys.modules:
            with contextlib.suppress(ImportError):  # too old: its first array says so
                importlib.import_module(package)
