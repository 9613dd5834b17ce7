"""A library in a process of its own."""

from __future__ import annotations

import os
import sys
from typing import Any

from numpy.typing import NDArray

from roipool.tools.libraries.library import Absent, Library
from roipool.tools.libraries.process import Ended, Process
from roipool.tools.libraries.task import Task, as_message

__all__ = ["IMPORT_SECONDS", "Worker"]

IMPORT_SECONDS = 120.0  # that importing a library may take, where answers have a limit


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


def _quarter_of_memory() -> int:
    """Return how much such a process may take: of some libraries an odd box takes all.

    They then fail, where the system would have to end one process or another.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not on this system
        return 0
