"""Compares with goldens: stored answers of other libraries' releases.

A folder of goldens holds the inputs of edge cases and the answers of several libraries; its README
names the releases. The rows in `roipool.systems` have an `Answer` for each golden. Selected values
(maxima, nearest cells, argmax) must agree bit for bit, sums within a few float32 ulps of the
largest value, since only the order of summation differs. A sample on the wrong side of a floor, a
ceil or the map's border causes a larger difference.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from roipool.systems import SYSTEMS, System
from roipool.systems.case import Array, Case
from roipool.systems.stored import Answer, Golden
from roipool.verification.tolerance import Comparison, compare

from .call import run, to_nchw

FOLDER = files("roipool.verification") / "goldens"
ULPS = 8  # of float32, relative to the largest term
NHWC_FILES = ("tensorflow",)  # whose answers have channels last


class ReleasedProgram(NamedTuple):
    """A released program: the row that computes the same, and its answer."""

    row: str
    answer: Answer

    def agreement(self, golden: Golden, library: Any) -> Comparison:
        """Make the golden's call with a library's functions, and compare."""
        answer = self.answer
        layout = "NHWC" if answer.file in NHWC_FILES else "NCHW"
        expected = to_nchw(golden.answers[answer.key].astype(np.float64), layout)
        largest = answer.terms(golden) if answer.terms else np.abs(expected).max(initial=0)
        ulps = 0 if answer.exact else ULPS
        return compare(self.computed(golden, library), expected, largest, ulps, roundings=0)

    def computed(self, golden: Golden, library: Any) -> Array:
        """Return what a library's functions compute."""
        result = self.answer.result
        results = run(case_of(self.row, self.answer, golden), library, _needed(self.row, result))
        return results[result] if isinstance(result, str) else result(results)


# The goldens of all systems, by title.
PROGRAMS: dict[str, ReleasedProgram] = {
    title: ReleasedProgram(name, answer)
    for name, row in SYSTEMS.items()
    for title, answer in row.goldens.items()
}


def case_of(row: str, answer: Answer, golden: Golden) -> Case:
    """Return the case of a row that is the golden's call."""
    features, rois = golden.inputs[answer.features], golden.rois
    bins = (len(rois), features.shape[1], *golden.size)
    grad = golden.inputs.get(answer.grad, np.zeros(bins, features.dtype))
    recorded = {name: golden.record[name] for name in SYSTEMS[row].options if name in golden.record}
    return Case(
        row,
        features,
        grad,
        rois,
        dtype=features.dtype.name,
        options=recorded | answer.options(golden),
        layout=SYSTEMS[row].layouts[0],
    )


def _needed(row: str, result: Any) -> System:
    """Return a row with the functions that a result depends on."""
    system, forward = SYSTEMS[row], ""
    if result == "gradient":
        if len(system.returns) > 1:  # for the argmax
            forward = system.forward
        return system._replace(forward=forward, box_gradient="", offset_gradient="")
    if result == "box_gradient":
        return system._replace(forward="", backward="", offset_gradient="")
    if result == "offset_gradient":
        return system._replace(forward="", backward="", box_gradient="")
    return system.only_forward
