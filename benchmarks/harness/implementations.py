"""The implementations of a round: roipool and its peers, in this process or in separate processes.

Only one computes at a time, undisturbed by the threads of others: after its turn, each waits until
its own thread pool is idle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

import roipool
from harness import ours
from roipool.tools.libraries import OWN_PROCESS, Absent, InstalledLibrary, Task, opened, prepared
from roipool.tools.libraries.client import Worker

__all__ = ["Call", "Clock", "Implementation", "open_ours", "open_peer"]

Call = Callable[[], list[Any]]
Clock = Callable[[Call, int], float]


class Implementation(Protocol):
    """The interface of an implementation."""

    name: str
    version: str
    remarks: Mapping[str, str]  # known reasons for differing results, by type

    def prepare(self, task: Task) -> None:
        """Prepare a task and run it once; raise `Absent` if that is impossible."""

    def results(self) -> list[NDArray[Any]]:
        """Return the results, in the task's layout."""

    def seconds(self, clock: Clock, repeats: int) -> float:
        """Run `repeats` calls; return the seconds of one."""

    def close(self) -> None:
        """Release all resources."""


class _Ours:
    """roipool itself."""

    name = "roipool"
    version = roipool.__version__
    remarks: Mapping[str, str] = {}

    def __init__(self, threads: int, out_reuse: bool, move: Callable[[Any], Any]) -> None:
        self._threads, self._out_reuse, self._move = threads, out_reuse, move

    def prepare(self, task: Task) -> None:
        roipool.set_num_threads(self._threads)
        self._call = ours.prepare(ours.moved(task, self._move), self._out_reuse)
        self._call()

    def results(self) -> list[NDArray[Any]]:
        return [_on_host(result) for result in self._call()]

    def seconds(self, clock: Clock, repeats: int) -> float:
        return clock(self._call, repeats)

    def close(self) -> None:
        self._call = list


class _Missing:
    """A peer that is not available; every use raises the reason."""

    version = ""
    remarks: Mapping[str, str] = {}

    def __init__(self, name: str, reason: Absent) -> None:
        self.name, self._reason = name, reason

    def prepare(self, task: Task) -> None:
        raise self._reason

    def results(self) -> list[NDArray[Any]]:
        raise self._reason

    def seconds(self, clock: Clock, repeats: int) -> float:
        raise self._reason

    def close(self) -> None:
        pass


class _InProcess:
    """A peer imported into this process."""

    def __init__(
        self, name: str, library: type[InstalledLibrary], threads: int, device: str
    ) -> None:
        self.name = name
        self.remarks: Mapping[str, str] = library.remarks
        self._peer: InstalledLibrary = opened(library, threads, device)
        self.version = self._peer.version

    def prepare(self, task: Task) -> None:
        self._call = prepared(self._peer, task)
        self._task = task

    def results(self) -> list[NDArray[Any]]:
        return self._peer.arrays(self._task, self._call())

    def seconds(self, clock: Clock, repeats: int) -> float:
        return clock(self._call, repeats)

    def close(self) -> None:
        self._call = list


class _Elsewhere:
    """A peer in a separate process."""

    def __init__(
        self, name: str, library: type[InstalledLibrary], threads: int, python: str
    ) -> None:
        self.name = name
        self.remarks: Mapping[str, str] = library.remarks
        self._worker = Worker(name, library, threads, python)
        self.version = self._worker.version

    def prepare(self, task: Task) -> None:
        self._worker.prepare(task)

    def results(self) -> list[NDArray[Any]]:
        return self._worker.results()

    def seconds(self, clock: Clock, repeats: int) -> float:
        # The process uses the CPU's clock itself.
        return self._worker.seconds(repeats)

    def close(self) -> None:
        self._worker.close()


def open_ours(threads: int, out_reuse: bool, move: Callable[[Any], Any]) -> Implementation:
    """Return roipool as an implementation.

    Parameters
    ----------
    threads : int
        Number of threads.
    out_reuse : bool
        Whether all calls write into the same arrays.
    move : callable
        Copies an array to the device.
    """
    return _Ours(threads, out_reuse, move)


def open_peer(
    name: str, library: type[InstalledLibrary], threads: int, device: str, python: str | None
) -> Implementation:
    """Open a peer in this process, or in a separate process if it needs one.

    Parameters
    ----------
    name : str
        The library's name.
    library : type
        The library's adapter.
    threads : int
        Number of threads.
    device : {"cpu", "cuda"}
        Device of its arrays.
    python : str or None
        The interpreter of its environment, if not this one.

    Returns
    -------
    Implementation
        If the peer is not available, an implementation that always raises `Absent`.
    """
    try:
        if python or (name in OWN_PROCESS and device == "cpu"):
            return _Elsewhere(name, library, threads, python or sys.executable)
        return _InProcess(name, library, threads, device)
    except Absent as reason:
        return _Missing(name, reason)


def _on_host(array: Any) -> NDArray[Any]:
    """Copy a CuPy array to the host; return a NumPy array unchanged."""
    host: NDArray[Any] = array.get() if hasattr(array, "get") else array
    return host
