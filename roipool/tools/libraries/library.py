"""Base class of the adapters of libraries, and the error for a missing library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from .task import Level, Task

__all__ = ["Absent", "Library", "first_line", "opened", "prepared"]

_MODES = {
    "avg": "the average",
    "max": "the maximum of whole samples",
    "max of corners": "the maximum of weighted corners",
}


class Absent(Exception):  # noqa: N818 - it is an answer, not an error
    """Raised when a library cannot be used; the message says why."""


class Library:
    """A library: what it offers, and how it is called; a subclass writes `level` and `arrays`.

    Parameters
    ----------
    threads : int
        How many it may use.
    device : {"cpu", "cuda"}
        Where its arrays lie.

    Raises
    ------
    Absent
        If it is not installed, or cannot compute there.
    """

    modules: tuple[str, ...] = ()
    operations: tuple[str, ...] = ("roi_align", "roi_pool")
    layouts: tuple[str, ...] = ("NCHW",)
    dtypes: tuple[str, ...] = ("float16", "float32", "float64")
    modes: tuple[str, ...] = ("avg",)
    gradients: tuple[str, ...] = ("features",)
    # Why results of a type lie further apart than its tolerance, where that is known.
    remarks: ClassVar[dict[str, str]] = {}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self.threads = threads
        if device != "cpu":
            raise Absent("is compared on the CPU only")

    @property
    def version(self) -> str:
        """The version, or several, of the packages it consists of."""
        return ", ".join(f"{m} {_release(sys.modules[m].__version__)}" for m in self.modules)

    @classmethod
    def check(cls, task: Task) -> None:
        """Raise `Absent` for what the library does not have, before any work."""
        dtype = task.levels[0].features.dtype.name
        if task.operation not in cls.operations:
            raise Absent(f"has no {task.operation}")
        if task.mode not in cls.modes:
            raise Absent(f"has no roi_align that takes {_MODES[task.mode]}")
        if task.backward and not cls.gradients:
            raise Absent("has no gradients")
        if task.backward and task.wrt not in cls.gradients:
            raise Absent(f"has no gradient with respect to the {task.wrt}")
        if task.layout not in cls.layouts:
            raise Absent(f"takes {cls.layouts[0]} only")
        if dtype not in cls.dtypes:
            raise Absent(f"takes no {dtype}")

    def prepare(self, task: Task) -> Callable[[], list[Any]]:
        """Build everything that is not to be timed; return the call that is."""
        calls = [self.level(task, level) for level in task.levels]
        return lambda: [call() for call in calls]

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        """Return the call for one level."""
        raise NotImplementedError

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        """Turn what the call returned into NumPy arrays in the task's layout."""
        return results


def _release(version: str) -> str:
    """Leave out what follows the numbers, such as a build's name."""
    return version.split("-")[0]


def opened(library: type[Library], threads: int, device: str = "cpu") -> Library:
    """Import a library; whatever goes wrong there is a reason for its absence."""
    try:
        return library(threads, device)
    except Absent:
        raise
    except ImportError as error:
        raise Absent(f"is not installed ({first_line(error)})") from error
    except Exception as error:
        raise Absent(f"could not be loaded: {first_line(error)}") from error


def prepared(library: Library, task: Task) -> Callable[[], list[Any]]:
    """Make a library ready and let it run once, so that what it refuses is known."""
    library.check(task)
    try:
        call = library.prepare(task)
        call()
    except Absent:
        raise
    except Exception as error:
        raise Absent(f"refuses this: {first_line(error)}") from error
    return call


def first_line(error: Exception) -> str:
    """Return what an error says, shortened to a line: the last one of another traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    said = (lines[-1] if lines[0].startswith("Traceback") else lines[0])[:120]
    name = type(error).__name__
    return said if said.startswith(name) else f"{name}: {said}"
