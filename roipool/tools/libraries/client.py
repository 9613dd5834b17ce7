"""A library, or anybody's functions, in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from roipool.tools.libraries.functions import Misbehaviour
from roipool.tools.libraries.library import Absent, Library
from roipool.tools.libraries.process import Ended, Process
from roipool.tools.libraries.task import Task, as_message

__all__ = ["Functions", "Worker", "misbehaviour"]

IMPORT_SECONDS = 120.0  # that importing a library may take, where answers have a limit
MEMORY = 8 * 2**30  # bytes that functions on the CPU may take


class Worker:
    """A library in a process of its own, which is started anew after one that ended.

    Parameters
    ----------
    name : str
        Its name in `LIBRARIES`.
    library : type
        What it offers.
    threads : int
        How many it may use.
    python : str
        The interpreter of the environment it is installed in.
    seconds : float, optional
        That an answer may take.

    Raises
    ------
    Absent
        If it cannot be started there.
    """

    def __init__(
        self,
        name: str,
        library: type[Library],
        threads: int,
        python: str,
        seconds: float | None = None,
    ) -> None:
        self._first = {"library": name, "threads": threads, "memory": _quarter_of_memory()}
        self._check, self._python, self._seconds = library.check, python, seconds
        self._process: Process | None = self._start()
        if "version" not in self._process.about:
            self.close()
            raise Absent("cannot be understood: it names no version")
        self.version = str(self._process.about["version"])

    def prepare(self, task: Task) -> None:
        """Make ready for a task and run it once; raises `Absent` where it cannot."""
        self._check(task)
        self._ask({"task": as_message(task)})

    def results(self) -> list[NDArray[Any]]:
        """Return what it computes, in the task's layout."""
        found: list[NDArray[Any]] = self._ask({"results": True})["results"]
        return found

    def seconds(self, repeats: int) -> float:
        """Return the seconds of one call, of so many in a row."""
        return float(self._ask({"time": repeats})["seconds"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> Process:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._first["threads"])}
        if self._python != sys.executable:
            environment.pop("PYTHONPATH", None)  # it may lead to packages of this environment
        limit = None if self._seconds is None else max(self._seconds, IMPORT_SECONDS)
        return Process(self._python, self._first, environment, limit)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = self._start()
        try:
            answer: dict[str, Any] = self._process.ask(request, self._seconds)
        except Ended:
            self._process = None
            raise
        if "refused" in answer:
            raise Absent(f"refuses this: {answer['refused']}")
        return answer


class Functions:
    """Calls anybody's functions in another process, which is started anew after one that ended.

    Parameters
    ----------
    forward, backward, backward_boxes : str
        ``package.module:function`` or ``path/to/file.py:function``; a gradient may be "autograd",
        or None.
    arrays, device : str
        What the functions take.
    python : str
        The interpreter.
    seconds : float
        That a call may take.
    lenient : bool
        Whether functions may take all the memory, write into their arguments and print.

    Attributes
    ----------
    positions : sequence of str or None
        The forward's parameters that can be passed by position, if they are known.

    Raises
    ------
    ValueError
        If the implementation cannot be loaded.
    """

    def __init__(
        self,
        forward: str,
        backward: str | None,
        backward_boxes: str | None,
        arrays: str,
        device: str,
        python: str,
        seconds: float,
        lenient: bool = False,
    ) -> None:
        self._first = {
            "forward": forward,
            "backward": backward,
            "backward_boxes": backward_boxes,
            "arrays": arrays,
            "device": device,
            "folder": str(Path.cwd()),
            "memory": 0 if lenient or device != "cpu" else MEMORY,
            "may_write": lenient,
        }
        self._python, self._seconds, self._lenient = python, seconds, lenient
        self._process: Process | None = self._start()
        self._parameters: dict[str, Sequence[str] | None] = self._process.about["parameters"]
        self.positions: Sequence[str] | None = self._process.about["positions"]

    def parameters(self, which: str) -> Sequence[str] | None:
        """Return the names of a function's parameters, or None if they cannot be known."""
        return self._parameters[which]

    def call(
        self, which: str, given: Sequence[tuple[str, Any]], options: dict[str, Any]
    ) -> Sequence[Any]:
        """Call "forward", "backward" or "backward_boxes"."""
        if self._process is None:
            self._process = self._start()
        try:
            answer = self._process.ask([which, list(given), options], self._seconds)
        except Ended as error:
            self._process = None
            raise misbehaviour(error) from None
        if "kind" in answer:
            raise Misbehaviour(answer["kind"], answer["text"])
        return cast(Sequence[Any], answer["results"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> Process:
        limit = max(self._seconds, IMPORT_SECONDS)
        try:
            return Process(self._python, self._first, seconds=limit, may_print=self._lenient)
        except Absent as error:
            raise ValueError(f"{self._first['forward']} cannot be used: {error}") from None


def misbehaviour(error: Ended) -> Misbehaviour:
    """Return the end of a process as what the implementation in it did."""
    if error.late:
        return Misbehaviour("hangs", str(error))
    return Misbehaviour("crashes", f"crashes: {error}")


def _quarter_of_memory() -> int:
    """Return how much such a process may take: of some libraries an odd box takes all.

    They then fail, where the system would have to end one process or another.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not on this system
        return 0
