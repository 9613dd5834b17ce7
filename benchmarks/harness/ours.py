"""roipool's side of a task: the same call that a user would write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import roipool
from roipool.cli.bench.ours import Roipool
from roipool.tools.libraries import Level, Task

__all__ = ["moved", "prepare"]


def prepare(task: Task, out_reuse: bool = False) -> Callable[[], list[Any]]:
    """Return the call that is timed: every level once.

    Parameters
    ----------
    task : Task
        With NumPy or with CuPy arrays.
    out_reuse : bool
        Write into the same arrays at every call, in place of fresh ones.

    Returns
    -------
    callable
        Returns the result of each level.
    """
    library = Roipool(roipool.get_num_threads())
    calls = [library.level(task, level) for level in task.levels]
    if out_reuse:
        firsts = [call() for call in calls]
        calls = [
            functools.partial(call, out=first) for call, first in zip(calls, firsts, strict=True)
        ]
    return lambda: [call() for call in calls]


def moved(task: Task, move: Callable[[Any], Any]) -> Task:
    """Return the task with every array passed through `move`, such as ``cupy.asarray``."""

    def moved_level(level: Level) -> Level:
        grad = None if level.grad is None else move(level.grad)
        return Level(move(level.features), move(level.rois), grad, level.scale)

    return task._replace(levels=[moved_level(level) for level in task.levels])
