"""Modules of functions, used from tests on NumPy arrays whatever the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np

from _support.backends import Backend

_current: ContextVar[Backend] = ContextVar("backend")


@contextmanager
def computing_on(backend: Backend) -> Iterator[None]:
    """Let everything that is `Placed` compute on a backend."""
    token = _current.set(backend)
    try:
        yield
    finally:
        _current.reset(token)


class Placed:
    """A module or an object: its functions take and give NumPy arrays, and compute on a backend.

    The backend is that of `computing_on`; without one, this is the module itself. Lists are arrays
    too. Tuples are sizes and shapes, and stay as they are.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    @property
    def _backend(self) -> Backend:
        return _current.get()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if _current.get(None) is None:
            return found
        if isinstance(found, type):  # a layer
            return lambda *args, **kwargs: Placed(found(*args, **kwargs))
        return self._placed(found) if callable(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._placed(self._wrapped)(*args, **kwargs)

    def _placed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = {name: self._there(value) for name, value in kwargs.items()}
            return self._back(function(*map(self._there, args), **given))

        return call

    def _there(self, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            return [self._backend.to_device(item) for item in value]
        if isinstance(value, (list, np.ndarray)):
            return self._backend.to_device(np.asarray(value))
        return value

    def _back(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(map(self._back, result))
        return self._backend.to_host(result)
