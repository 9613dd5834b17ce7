"""The base class of library adapters, and the exception for a missing library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from .task import LevelTask, Task

__all__ = ["Absent", "InstalledLibrary", "first_line", "opened", "prepared"]

_MODES = {
    "avg": "the average",
    "max": "the maximum of whole samples",
    "max of corners": "the maximum of weighted corners",
}


class Absent(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised when a library cannot be used; the message says why."""


class InstalledLibrary:
    """Adapter of a library; subclasses define its capabilities and implement `level`.

    Raises
    ------
    Absent
        If the library is not installed, or does not support the device.
    """

    modules: tuple[str, ...] = ()
    operations: tuple[str, ...] = ("roi_align", "roi_pool")
    layouts: tuple[str, ...] = ("NCHW",)
    dtypes: tuple[str, ...] = ("float16", "float32", "float64")
    modes: tuple[str, ...] = ("avg",)
    gradients: tuple[str, ...] = ("features",)
    # Reasons for errors above a type's tolerance, if known.
    remarks: ClassVar[dict[str, str]] = {}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self.threads = threads
        if device != "cpu":
            raise Absent("is compared on the CPU only")

    @property
    def version(self) -> str:
        """The versions of the library's packages."""
        return ", ".join(f"{m} {_release(sys.modules[m].__version__)}" for m in self.modules)

    @classmethod
    def check(cls, task: Task) -> None:
        """Raise `Absent` if the library does not support a task, before any work."""
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
        """Do all preparations, which are not timed; return the call to time."""
        calls = [self.level(task, level) for level in task.levels]
        return lambda: [call() for call in calls]

    def level(self, task: Task, level: LevelTask) -> Callable[[], Any]:
        """Return the call for one level."""
        raise NotImplementedError

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        """Convert the results of a call to NumPy arrays in the task's layout."""
        return results


def _release(version: str) -> str:
    """Return the numbers of a version, without the name of a build."""
    return version.split("-")[0]


def opened(library: type[InstalledLibrary], threads: int, device: str = "cpu") -> InstalledLibrary:
    """Import a library; any exception becomes `Absent`."""
    try:
        return library(threads, device)
    except Absent:
        raise
    except ImportError as error:
        raise Absent(f"is not installed ({first_line(error)})") from error
    except Exception as error:
        raise Absent(f"could not be loaded: {first_line(error)}") from error


def prepared(library: InstalledLibrary, task: Task) -> Callable[[], list[Any]]:
    """Prepare a task and run it once, to find out whether the library rejects it."""
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
    """Return an error's message in one line; of a message with a traceback, the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    said = (lines[-1] if lines[0].startswith("Traceback") else lines[0])[:120]
    name = type(error).__name__
    return said if said.startswith(name) else f"{name}: {said}"
