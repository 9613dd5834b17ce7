"""The implementations of a round: roipool and its peers, each in this process or in one of its own.

Only one computes at a time, and the threads of another do not disturb it: whichever has run waits
until its own pool sleeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

import roipool
from harness import elsewhere, ours
from harness.peers import OWN_PROCESS
from roipool.cli.bench.libraries import Absent, Library, Task, opened, prepared

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


class _Worker:
    """A peer in a process of its own; arrays travel through files, requests through pipes.

    Parameters
    ----------
    name : str
        By which `elsewhere` knows it.
    library : type
        What it offers.
    threads : int
        How many it may use.
    python : str
        The interpreter of the environment it is installed in.

    Raises
    ------
    Absent
        If it cannot be started there.
    """

    def __init__(self, name: str, library: type[Library], threads: int, python: str) -> None:
        self.name = name
        self.remarks: Mapping[str, str] = library.remarks
        self._check = library.check
        self._files = contextlib.ExitStack()
        self._folder = Path(self._files.enter_context(tempfile.TemporaryDirectory()))
        self._complaints = self._files.enter_context((self._folder / "stderr").open("w+"))
        command = [python, str(Path(elsewhere.__file__).parent), name, str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        if python != sys.executable:
            environment.pop("PYTHONPATH", None)  # it may lead to packages of this environment
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                text=True,
                env=environment,
            )
        except OSError as error:
            self._files.close()
            raise Absent(f"could not be started: {python}: {error.strerror}") from error
        self._requests = cast(IO[str], self._process.stdin)
        self._answers = cast(IO[str], self._process.stdout)
        try:
            self.version = str(self._answer()["version"])
        except Absent:
            self.close()
            raise

    def prepare(self, task: Task) -> None:
        self._check(task)
        for old in self._folder.glob("*.npy"):
            old.unlink()
        elsewhere.save(task, self._folder)
        self._levels = len(task.levels)
        self._ask(prepare=str(self._folder))

    def results(self) -> list[NDArray[Any]]:
        self._ask(results=str(self._folder))
        return [np.load(self._folder / f"result{number}.npy") for number in range(self._levels)]

    def seconds(self, clock: Clock, repeats: int) -> float:
        # It has the clock of the CPU on its side.
        return float(self._ask(time=repeats)["seconds"])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._requests.close()
        self._process.wait()
        self._answers.close()
        self._files.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            self._complaints.seek(0)
            said = [text.strip() for text in self._complaints if text.strip()]
            raise Absent(f"its process ended: {said[-1][:120] if said else 'without a word'}")
        answer: dict[str, Any] = json.loads(line)
        if "absent" in answer:
            raise Absent(answer["absent"])
        return answer


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
            return _Worker(name, library, threads, python or sys.executable)
        return _InProcess(name, library, threads, device)
    except Absent as reason:
        return _Missing(name, reason)


def _on_host(array: Any) -> NDArray[Any]:
    """Copy a CuPy array to the host; a NumPy array is there already."""
    host: NDArray[Any] = array.get() if hasattr(array, "get") else array
    return host
