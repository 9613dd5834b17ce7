"""The implementations of a round: roipool and its peers, each in this process or in one of its own.

Only one computes at a time, and the threads of another do not disturb it: whichever has run waits
until its own pool sleeps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

import roipool
from harness import ours
from roipool.tools.libraries import OWN_PROCESS, Absent, Library, Task, opened, prepared
from roipool.tools.libraries.client import Worker

__all__ = ["Call", "Clock", "Implementation", "open_ours", "open_peer"]

Call = Callable[[], list[Any]]
Clock = Callable[[Call, int], float]


class Implementation(Protocol):
    """What takes part in a round."""

    name: str
    version: str
    remarks: Mapping[str, str]  # why results of a type differ, if that is known

    def prepare(self, task: Task) -> None:
        """Make ready for a task and run it once; raises `Absent` where it cannot."""

    def results(self) -> list[NDArray[Any]]:
        """Return what it computes, in the task's layout."""

    def seconds(self, clock: Clock, repeats: int) -> float:
        """Run a round of so many calls; return the seconds of one."""

    def close(self) -> None:
        """Let go of everything."""


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
    """A peer that cannot be had; it says why whenever it is asked."""

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

    def __init__(self, name: str, library: type[Library], threads: int, device: str) -> None:
        self.name = name
        self.remarks: Mapping[str, str] = library.remarks
        self._peer: Library = opened(library, threads, device)
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
    """A peer in a process of its own."""

    def __init__(self, name: str, library: type[Library], threads: int, python: str) -> None:
        self.name = name
        self.remarks: Mapping[str, str] = library.remarks
        self._worker = Worker(name, library, threads, python)
        self.version = self._worker.version

    def prepare(self, task: Task) -> None:
        self._worker.prepare(task)

    def results(self) -> list[NDArray[Any]]:
        return self._worker.results()

    def seconds(self, clock: Clock, repeats: int) -> float:
        # It has the clock of the CPU on its side.
        return self._worker.seconds(repeats)

    def close(self) -> None:
        self._worker.close()


def open_ours(threads: int, out_reuse: bool, move: Callable[[Any], Any]) -> Implementation:
    """Return roipool as an implementation.

    Parameters
    ----------
    threads : int
        How many it may use.
    out_reuse : bool
        Whether its calls write into the same arrays every time.
    move : callable
        Brings an array to the device.
    """
    return _Ours(threads, out_reuse, move)


def open_peer(
    name: str, library: type[Library], threads: int, device: str, python: str | None
) -> Implementation:
    """Open a peer in this process, or in its own where it needs one.

    Parameters
    ----------
    name : str
        The library's.
    library : type
        What it offers.
    threads : int
        How many it may use.
    device : {"cpu", "cuda"}
        Where its arrays lie.
    python : str or None
        The interpreter of the environment that it lives in, if not this one.

    Returns
    -------
    Implementation
        Ready to `prepare`; one that always raises `Absent` if the peer cannot be had.
    """
    try:
        if python or (name in OWN_PROCESS and device == "cpu"):
            return _Elsewhere(name, library, threads, python or sys.executable)
        return _InProcess(name, library, threads, device)
    except Absent as reason:
        return _Missing(name, reason)


def _on_host(array: Any) -> NDArray[Any]:
    """Copy a CuPy array to the host; a NumPy array is there already."""
    host: NDArray[Any] = array.get() if hasattr(array, "get") else array
    return host
