"""Starting a library in a process of its own, and asking it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from roipool.cli.libraries.library import Absent, Library
from roipool.cli.libraries.task import Task, save

__all__ = ["Worker"]

_PATIENCE = 5.0  # seconds


class Worker:
    """A library in a process of its own; arrays travel through files, requests through pipes.

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

    Attributes
    ----------
    alive : bool
        Whether the process has not ended by itself.

    Raises
    ------
    Absent
        If it cannot be started there.
    """

    alive = True

    def __init__(self, name: str, library: type[Library], threads: int, python: str) -> None:
        self._check = library.check
        self._files = contextlib.ExitStack()
        self._folder = Path(self._files.enter_context(tempfile.TemporaryDirectory()))
        self._complaints = self._files.enter_context((self._folder / "stderr").open("w+"))
        command = [python, str(Path(__file__).parent), name, str(threads)]
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
        """Make ready for a task and run it once; raises `Absent` where it cannot."""
        self._check(task)
        for old in self._folder.glob("*.npy"):
            old.unlink()
        save(task, self._folder)
        self._levels = len(task.levels)
        self._ask(prepare=str(self._folder))

    def results(self) -> list[NDArray[Any]]:
        """Return what it computes, in the task's layout."""
        self._ask(results=str(self._folder))
        return [np.load(self._folder / f"result{number}.npy") for number in range(self._levels)]

    def seconds(self, repeats: int) -> float:
        """Return the seconds of one call, of so many in a row."""
        return float(self._ask(time=repeats)["seconds"])

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # it computes, and nobody waits for the result any more
            self._process.kill()
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
            self.alive = False
            raise Absent(f"its process ended{self._how()}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "absent" in answer:
            raise Absent(answer["absent"])
        return answer

    def _how(self) -> str:
        """Return the signal that ended the process, if one did."""
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            status = self._process.wait(_PATIENCE)
            if status < 0:
                return f" by {signal.Signals(-status).name}"
        return ""

    def _last_words(self) -> str:
        """Return the line of its standard error that tells most."""
        self._complaints.seek(0)
        said = [text.strip() for text in self._complaints if text.strip()]
        errors = [line for line in said if "error" in line.lower() or "what()" in line]
        return [*said, *errors][-1][:120] if said else "without a word"
