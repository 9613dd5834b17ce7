"""Where calls compute: on the CPU, or elsewhere with arrays that are brought there and back."""

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

from .case import Array, dtypes

Put = Callable[[Array], Any]
Get = Callable[[Any], Array]


class OnDevice:
    """A module or an object: its functions take and return NumPy arrays, and compute elsewhere.

    Lists of numbers are arrays, too, and arrays may be in lists, and in tuples of results. Other
    arguments, such as tuples of sizes, stay as they are.

    Parameters
    ----------
    wrapped : object
        Whose functions are called.
    put, get : callable
        Bring an array there and back.
    """

    def __init__(self, wrapped: Any, put: Put, get: Get) -> None:
        self._wrapped, self._put, self._get = wrapped, put, get

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if isinstance(found, ModuleType):
            return OnDevice(found, self._put, self._get)
        if inspect.isclass(found):
            return lambda *args, **kwargs: OnDevice(found(*args, **kwargs), self._put, self._get)
        return self._calling(found) if callable(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is wrapped."""
        return self._calling(self._wrapped)(*args, **kwargs)

    def _calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = {name: self._there(value) for name, value in kwargs.items()}
            return self._back(function(*map(self._there, args), **given))

        return call

    def _there(self, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            return [self._there(item) for item in value]
        return self._put(np.asarray(value)) if isinstance(value, (list, np.ndarray)) else value

    def _back(self, result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(map(self._back, result))
        return self._get(result) if hasattr(result, "dtype") else result


class Device(NamedTuple):
    """Where to compute.

    Attributes
    ----------
    name : str
        For people.
    library : module or object
        With roipool's functions, which take and return NumPy arrays.
    types : tuple of str
        The types of maps that it has.
    put, get : callable
        Bring an array there and back.
    """

    name: str
    library: Any
    types: tuple[str, ...]
    put: Put
    get: Get


def device(backend: str, library: Any = roipool) -> Device:
    """Return the device of "cpu" or "cuda"."""
    if backend == "cpu":
        return Device(backend, library, tuple(dtypes()), _as_it_is, np.asarray)
    cupy = importlib.import_module("cupy")
    put, get = cupy.asarray, cupy.asnumpy
    types = tuple(name for name, dtype in dtypes().items() if _can_hold(put, dtype))
    return Device(backend, OnDevice(library, put, get), types, put, get)


def _as_it_is(array: Any) -> Any:
    return array


def _can_hold(put: Put, dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a type can be brought to a device; CuPy 13 has no bfloat16."""
    with contextlib.suppress(TypeError, ValueError):
        put(np.zeros(1, dtype))
        return True
    return False
