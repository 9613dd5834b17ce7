"""Modules whose functions take NumPy arrays and compute on a chosen backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from _support.backends import Backend
from roipool.verification.device import OnDevice

_current: ContextVar[Backend] = ContextVar("backend")


@contextmanager
def computing_on(backend: Backend) -> Iterator[None]:
    """Make the functions of every `Placed` module compute on a backend."""
    token = _current.set(backend)
    try:
        yield
    finally:
        _current.reset(token)


class Placed:
    """A module that computes on the backend of `computing_on`, or unchanged outside of it."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        module, backend = self._module, _current.get(None)
        if backend is not None:
            module = OnDevice(module, backend.to_device, backend.to_host)
        return getattr(module, name)
