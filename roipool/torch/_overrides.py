"""Operators of other libraries that roipool computes while a context is open."""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ContextDecorator, ExitStack
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

    def begin(self) -> None:
        """Let roipool compute the operators, until `end` is called as often."""
        with self._lock:
            if self._depth == 0:
                with ExitStack() as stack:  # an install that fails half-way is taken back
                    self._install(stack)
                    self._installed = stack.pop_all()
                LOGGER.info("%s are computed by roipool", self._subject)
            self._depth += 1

    def end(self) -> None:
        """Let the library compute the operators, unless `begin` was called more often."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._installed.close()
                LOGGER.info("%s are its own again", self._subject)


class Overriding(AbstractContextManager[None], ContextDecorator):
    """A context in which roipool computes a library's operators, or, enabled, the whole process."""

    def __init__(self, override: Override) -> None:
        self._override = override

    def __enter__(self) -> None:
        self._override.begin()

    def __exit__(self, *error: object) -> None:
        self._override.end()

    def enable(self) -> None:
        """Let roipool compute the operators for the rest of the process, as in a server."""
        self._override.begin()


def library_of(stack: ExitStack, namespace: str, kind: str) -> Any:
    """Return a library that adds operators to a namespace until the stack is closed."""
    library = torch.library.Library(namespace, kind)
    stack.callback(library._destroy)
    return library


def register_kernels(namespace: str, library: Any, kernels: Kernels) -> set[str]:
    """Register kernels with a library of a namespace, for each type of device.

    Where roipool cannot compute, and the namespace has kernels of its own, these stay: a warning
    says so, once. Return the types of devices that roipool computes on.
    """
    computed = set()
    for device, bridge in BRIDGES.items():
        reason = bridge.why_not()
        if reason is not None and has_kernels(namespace, kernels, device):
            warn_once(f"{namespace} computes {device} tensors itself: {reason}")
            continue
        computed.add(device.lower())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of replaced kernels, which are logged
            for name, compute in kernels.items():
                own = naming_errors(name, torch.no_grad()(compute))
                library.impl(name, own, device, allow_override=True)
    return computed


def has_kernels(namespace: str, names: Iterable[str], device: str) -> bool:
    """Return whether all operators of a namespace have kernels for a type of device."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return all(has_kernel(f"{namespace}::{name}", device) for name in names)


@functools.cache
def warn_once(text: str) -> None:
    """Warn in the log, once for each text."""
    LOGGER.warning("%s", text)
