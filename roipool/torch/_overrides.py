"""Operators of other libraries that roipool computes while a context is open."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from roipool.torch._operators import BRIDGES, naming_errors

LOGGER = logging.getLogger("roipool")

Kernels = Mapping[str, Callable[..., Any]]  # by operator


class Override:
    """Operators that roipool computes for a library, in all threads, while a context is open.

    Parameters
    ----------
    subject : str
        What is computed, in the plural, for the log.
    install : callable
        Puts roipool in the place of the library, and pushes on the stack that it is given what
        takes that back.
    """

    def __init__(self, subject: str, install: Callable[[ExitStack], None]) -> None:
        self._subject = subject
        self._install = install
        self._lock = threading.Lock()
        self._depth = 0
        self._installed = ExitStack()

    @property
    def is_active(self) -> bool:
        """Whether roipool computes the operators now."""
        return self._depth > 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Return a context in which roipool computes the operators; it may be nested."""
        with self._lock:
            if self._depth == 0:
                with ExitStack() as stack:  # an install that fails half-way is taken back
                    self._install(stack)
                    self._installed = stack.pop_all()
                LOGGER.info("%s are computed by roipool", self._subject)
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._installed.close()
                    LOGGER.info("%s are its own again", self._subject)


def library_of(stack: ExitStack, namespace: str, kind: str) -> Any:
    """Return a library that adds operators to a namespace until the stack is closed."""
    library = torch.library.Library(namespace, kind)
    stack.callback(library._destroy)
    return library


def register_kernels(library: Any, kernels: Kernels) -> None:
    """Register kernels with a library, for each type of device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of replaced kernels, which are logged
        for device in BRIDGES:
            for name, compute in kernels.items():
                own = naming_errors(name, torch.no_grad()(compute))
                library.impl(name, own, device, allow_override=True)
