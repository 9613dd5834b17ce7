"""Installed libraries, each in a separate process.

Separate processes, because some libraries crash on invalid boxes, and because they may be installed
in different environments.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool.systems import COMPARED
from roipool.systems.boxes import fractions, of_fractions
from roipool.systems.case import Case, in_layout
from roipool.tools.compare.engines import case_of
from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.tools.compare.systems import INSTALLED
from roipool.tools.libraries import LIBRARIES, Absent, Task, in_given_order, single_call
from roipool.tools.libraries.client import Worker
from roipool.verification.call import to_nchw

__all__ = ["Programs"]

FloatArray = NDArray[np.float32]


class Programs:
    """The installed libraries of a comparison; a context manager that ends their processes.

    Parameters
    ----------
    names : sequence of str
        Keys of `INSTALLED`.
    pythons : mapping of str to str
        Interpreters of libraries in other environments.

    Attributes
    ----------
    versions : dict
        Versions of the available libraries.
    absent : dict
        Reasons why the others are not available.
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
        """Yield the names and functions of all implementations."""
        yield from self._computes.items()


class _Program:
    """One library."""

    def __init__(self, name: str, threads: int, python: str, seconds: float) -> None:
        self._worker = Worker(name, LIBRARIES[name], threads, python, seconds)
        self.version, self.close = self._worker.version, self._worker.close
        self._check = LIBRARIES[name].check

    def compute(self, asked: Mapping[str, Any]) -> Compute:
        """Return a function that computes one of the library's operations."""

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
    """Return a library's task, and the order of its boxes."""
    features, rois, scale = problem.features, problem.rois, problem.options.spatial_scale
    grad = None if part == "forward" else problem.grad
    if asked["operation"] == "crop_and_resize":
        rois = np.column_stack([rois[:, 0], fractions(_case(problem))["boxes"]])
        features = in_layout(features, "NHWC")
        grad = None if grad is None else in_layout(grad, "NHWC")
        scale = 1.0
    options = {
        "output_size": problem.options.output_size,
        "sampling_ratio": problem.options.sampling_ratio,
        "wrt": "boxes" if part == "boxes" else "features",
        **asked,
    }
    return single_call(features, rois, grad, scale, options)


def _answer(
    result: FloatArray, problem: Problem, part: str, task: Task, order: NDArray[np.intp]
) -> FloatArray:
    """Convert a result to NCHW, pixels and the problem's order of boxes."""
    expected = PARTS[part]
    if result.ndim not in (2, 4):
        raise ValueError(f"returned {expected} with {result.ndim} dimensions")
    restored: FloatArray = in_given_order(to_nchw(result, task.layout), task, order)
    return of_fractions(_case(problem), restored) if part == "boxes" else restored


def _case(problem: Problem) -> Case:
    """Return the call of TensorFlow's crops that computes a problem."""
    return case_of(COMPARED["tensorflow.crop_and_resize"], problem)
