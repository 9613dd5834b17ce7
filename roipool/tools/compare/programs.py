"""The installed programs themselves, each in a process of its own.

A process of its own, because some of them end theirs on boxes that they do not like, and because
not all live in one environment.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.tools.compare.systems import INSTALLED
from roipool.tools.libraries import LIBRARIES, Absent, Task, in_given_order, single_call
from roipool.tools.libraries.client import Worker

__all__ = ["Programs"]

FloatArray = NDArray[np.float32]


class Programs:
    """Programs while a comparison runs; their processes end with it.

    Parameters
    ----------
    names : sequence of str
        Keys of `INSTALLED`.
    pythons : mapping of str to str
        Interpreters of programs that live in other environments.
    threads : int
        How many each may use.
    seconds : float
        That each may take for an answer.

    Attributes
    ----------
    versions : dict
        Of each that can be asked.
    absent : dict
        Of each other, why not.
    """

    def __init__(
        self, names: Sequence[str], pythons: Mapping[str, str], threads: int, seconds: float
    ) -> None:
        self.versions: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        self._workers = contextlib.ExitStack()
        self._computes: dict[str, Compute] = {}
        for name in names:
            try:
                program = _Program(name, threads, pythons.get(name, sys.executable), seconds)
            except Absent as reason:
                self.absent[name] = str(reason)
                continue
            except BaseException:
                self._workers.close()
                raise
            self._workers.callback(program.close)
            self.versions[name] = program.version
            for system, asked in INSTALLED[name].items():
                self._computes[f"{system}@{name}"] = program.compute(asked)

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._workers.close()

    def computes(self) -> Iterator[tuple[str, Compute]]:
        """Yield what can be compared, by name."""
        yield from self._computes.items()


class _Program:
    """One program."""

    def __init__(self, name: str, threads: int, python: str, seconds: float) -> None:
        self._worker = Worker(name, LIBRARIES[name], threads, python, seconds)
        self.version, self.close = self._worker.version, self._worker.close
        self._check = LIBRARIES[name].check

    def compute(self, asked: Mapping[str, Any]) -> Compute:
        """Return what computes one of its operations."""

        def call(problem: Problem, part: str) -> FloatArray:
            if problem.rotated != (asked["operation"] == "roi_align_rotated"):
                raise Unavailable(f"has no boxes with{'' if problem.rotated else 'out'} an angle")
            task, order = _task(problem, part, asked)
            return _answer(self._ask(task), problem, part, task, order)

        return call

    def _ask(self, task: Task) -> FloatArray:
        try:
            self._check(task)
        except Absent as reason:
            raise Unavailable(str(reason)) from reason
        try:
            self._worker.prepare(task)
            (result,) = self._worker.results()
        except Absent as reason:
            raise ValueError(str(reason)) from reason
        return np.asarray(result, np.float32)


def _task(problem: Problem, part: str, asked: Mapping[str, Any]) -> tuple[Task, NDArray[np.intp]]:
    """Return what a program is asked, and the order in which it gets the boxes."""
    features, rois, scale = problem.features, problem.rois, problem.options.spatial_scale
    grad = None if part == "forward" else problem.grad
    if asked["operation"] == "crop_and_resize":
        rois = rois[:, [0, 2, 1, 4, 3]] * np.float32(scale)
        rois[:, 1:] /= _last_cells(problem)
        rois[:, 0] = problem.rois[:, 0]
        features = np.ascontiguousarray(features.transpose(0, 2, 3, 1))
        grad = None if grad is None else np.ascontiguousarray(grad.transpose(0, 2, 3, 1))
        scale = 1.0
    options = {
        "output_size": problem.options.output_size,
        "sampling_ratio": problem.options.sampling_ratio,
        "wrt": "boxes" if part == "boxes" else "features",
        **asked,
    }
    return single_call(features, rois, grad, scale, options)


def _answer(
    found: FloatArray, problem: Problem, part: str, task: Task, order: NDArray[np.intp]
) -> FloatArray:
    """Bring a result to NCHW, pixels and the order of the boxes."""
    expected = PARTS[part]
    if found.ndim not in (2, 4):
        raise ValueError(f"answered {expected} with {found.ndim} dimensions")
    if task.layout == "NHWC" and found.ndim == 4:
        found = found.transpose(0, 3, 1, 2)
    restored: FloatArray = in_given_order(found, task, order)
    if part == "boxes":
        restored = restored / _last_cells(problem) * np.float32(problem.options.spatial_scale)
        restored = restored[:, [1, 0, 3, 2]]
    return restored


def _last_cells(problem: Problem) -> FloatArray:
    """Return the last row and column, twice; 1 for a map of one."""
    last = np.maximum(np.array(problem.features.shape[2:], np.float32) - 1, 1)
    return np.concatenate([last, last])
