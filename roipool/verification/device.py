"""The device that computes: the CPU, or a GPU to which arrays are copied and back."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import roipool
from roipool._dtypes import FLOATS
from roipool.systems.case import Array, dtypes

from .call import method_of

Put = Callable[[Array], Any]
Get = Callable[[Any], Array]


class OnDevice:
    """Wraps a module or object so that its functions take and return NumPy arrays.

    Arguments that are arrays, lists of numbers or lists of arrays are copied to the device; results
    are copied back, also from lists and tuples. Other arguments, such as sizes, stay as they are.

    Parameters
    ----------
    put, get : callable
        Copy an array to the device and back.
    """

    def __init__(self, wrapped: Any, put: Put, get: Get) -> None:
        self._wrapped, self._put, self._get = wrapped, put, get

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if isinstance(found, ModuleType):
            return OnDevice(found, self._put, self._get)
        if inspect.isclass(found):
            return ClassOnDevice(found, self)
        return self.on_device(found) if callable(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped function."""
        return self.on_device(self._wrapped)(*args, **kwargs)

    def of_object(self, wrapped: Any) -> OnDevice:
        """Wrap another object, for the same device."""
        return OnDevice(wrapped, self._put, self._get)

    def on_device(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of NumPy arrays that computes on the device."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            by_name = {name: self._to_device(value) for name, value in kwargs.items()}
            return self._to_host(function(*map(self._to_device, args), **by_name))

        return call

    def _to_device(self, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            return [self._to_device(item) for item in value]
        return self._put(np.asarray(value)) if isinstance(value, (list, np.ndarray)) else value

    def _to_host(self, result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(map(self._to_host, result))
        return self._get(result) if hasattr(result, "dtype") else result


class ClassOnDevice:
    """Wraps a class: its objects, and its methods as functions that make an object first."""

    def __init__(self, kind: type, library: OnDevice) -> None:
        self._kind, self._library = kind, library

    def __getattr__(self, name: str) -> Any:
        return self._library.on_device(method_of(self._kind, name))

    def __call__(self, *args: Any, **kwargs: Any) -> OnDevice:
        """Return an object."""
        return self._library.of_object(self._kind(*args, **kwargs))


class Device(NamedTuple):
    """A device that computes."""

    name: str  # name shown in reports
    library: Any  # roipool's functions, taking and returning NumPy arrays
    types: tuple[str, ...]  # types of features that the device supports, bytes aside
    # Copy an array to the device and back.
    put: Put
    get: Get


def device(backend: str, library: Any = roipool) -> Device:
    """Return the device of "cpu" or "cuda"."""
    floats = {name: dtype for name, dtype in dtypes().items() if name in FLOATS}
    if backend == "cpu":
        return Device(backend, library, tuple(floats), _unchanged, np.asarray)
    cupy = importlib.import_module("cupy")
    put, get = cupy.asarray, cupy.asnumpy
    types = tuple(name for name, dtype in floats.items() if _can_hold(put, dtype))
    return Device(backend, OnDevice(library, put, get), types, put, get)


def _unchanged(array: Any) -> Any:
    return array


def _can_hold(put: Put, dtype: np.dtype[Any]) -> bool:
    """Return whether the device supports a type; CuPy 13 has no bfloat16."""
    with contextlib.suppress(TypeError, ValueError):
        put(np.zeros(1, dtype))
        return True
    return False
