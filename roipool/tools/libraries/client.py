"""The parent's side of a library, or of arbitrary functions, in a separate process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from roipool.tools.libraries.functions import Misbehaviour
from roipool.tools.libraries.library import Absent, InstalledLibrary
from roipool.tools.libraries.process import Ended, Process
from roipool.tools.libraries.task import Task, as_message

__all__ = ["Functions", "Worker", "misbehaviour"]

IMPORT_SECONDS = 120.0  # time limit of importing a library, if calls have a limit
MEMORY = 8 * 2**30  # most bytes of memory of functions on the CPU


class Worker:
    """A library in a separate process, which is restarted after it has ended.

    Parameters
    ----------
    python : str
        The interpreter of the environment in which it is installed.
    seconds : float, optional
        Time limit of an answer.

    Raises
    ------
    Absent
        If the library cannot be started.
    """

    def __init__(
        self,
        name: str,
        library: type[InstalledLibrary],
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
        """Prepare a task and run it once; raise `Absent` if the library cannot."""
        self._check(task)
        self._ask({"task": as_message(task)})

    def results(self) -> list[NDArray[Any]]:
        """Return the results of the prepared task, in the task's layout."""
        results: list[NDArray[Any]] = self._ask({"results": True})["results"]
        return results

    def seconds(self, repeats: int) -> float:
        """Return the mean seconds of a call, over `repeats` calls."""
        return float(self._ask({"time": repeats})["seconds"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> Process:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._first["threads"])}
        if self._python != sys.executable:
            environment.pop("PYTHONPATH", None)  # it may contain packages of this environment
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
    """Calls arbitrary functions in another process, which is restarted after it has ended.

    Parameters
    ----------
    forward, backward, backward_boxes : str
        ``package.module:function`` or ``path/to/file.py:function``; a gradient may be "autograd",
        or None.
    arrays, device : str
        The library and device of the functions' arrays.
    lenient : bool
        Whether functions may use all memory, modify their arguments and print.

    Attributes
    ----------
    positions : sequence of str or None
        The forward's positional parameters, if known.
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
        """Return the names of a function's parameters, or None if they are unknown."""
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
    """Convert the end of a process to a misbehaviour of the implementation in it."""
    if error.late:
        return Misbehaviour("hangs", str(error))
    return Misbehaviour("crashes", f"crashes: {error}")


def _quarter_of_memory() -> int:
    """Return the limit of a process, since some libraries use all memory for some boxes.

    With a limit the call fails; without one, the system would kill any process.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not supported by the system
        return 0
