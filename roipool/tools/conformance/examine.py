"""Calls an implementation and compares its results with the oracle's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import roipool
from roipool.systems import SEMANTICS, Oracle, oracle_of
from roipool.systems.case import Array, Case, dtypes
from roipool.tools.libraries.functions import Misbehaviour
from roipool.verification.call import Results, run
from roipool.verification.check import Finding
from roipool.verification.oracle import Slack, against_oracle, ask
from roipool.verification.tolerance import Comparison

from .cases import CasePlan, box_gradient_of, in_box_type, of_box_gradient
from .implementations import Calls, library_of
from .tolerances import Tolerance, chosen

RESULTS = {
    "pooled": "pooled values",
    "argmax": "argmax",
    "gradient": "gradient",
    "box_gradient": "box gradient",
}
# Sources of the gradient of boxes: a function, autograd, or autograd if the implementation is
# differentiable in the boxes.
BY_FUNCTION, BY_AUTOGRAD, IF_DIFFERENTIABLE = "function", "autograd", "autograd, if there is one"

# Coordinates are moved by a few roundings to measure the effect of rounding them differently.
STEPS = 8
ROUNDINGS = 16  # of a sum, relative to its largest term
SLACK = 4  # the tolerance is so many times the change by such moves
MOVES = ((1, 1, 1, 1), (-1, -1, -1, -1), (-1, -1, 1, 1))  # directions of x1, y1, x2, y2
KINKS = (*MOVES, (1, 1, -1, -1), (1, -1, 1, -1))


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of one call."""

    name: str  # name of the call
    case: Case  # the arguments
    got: Results  # the results, in NCHW
    argmax: Array | None  # the argmax passed to the gradient of a maximum
    # One for each result, or one for a misbehaviour, with its kind as the subject.
    findings: tuple[Finding, ...]
    # Results that are right except for the rounding of coordinates.
    rounded: frozenset[str] = frozenset()

    @property
    def failures(self) -> list[Finding]:
        """The findings with a problem."""
        return [finding for finding in self.findings if finding.comparison.problem]

    @property
    def numbers(self) -> int:
        """How many numbers were compared."""
        return sum(finding.comparison.count for finding in self.findings)


class Examiner:
    """Makes and compares the calls of one implementation.

    Parameters
    ----------
    has_backward : bool
        Whether to examine a gradient with respect to the features.
    by_boxes : str
        `BY_FUNCTION`, `BY_AUTOGRAD` or `IF_DIFFERENTIABLE` to examine the gradient of boxes.
    name : str
        The implementation's name, for tolerances.
    tolerances : sequence of Tolerance
        Errors allowed besides roundings.
    strict : bool
        Whether coordinates must be rounded exactly as in the original.
    """

    def __init__(
        self,
        plan: CasePlan,
        calls: Calls,
        *,
        has_backward: bool = False,
        by_boxes: str = "",
        name: str = "",
        tolerances: Sequence[Tolerance] = (),
        strict: bool = False,
    ) -> None:
        self.plan, self.calls, self.strict = plan, calls, strict
        self._by_boxes = by_boxes
        self._kinks_of: dict[Case, Array | float] = {}
        operation = in_box_type(SEMANTICS[plan.semantics], plan.box_dtype)
        if not has_backward:
            operation = operation._replace(backward="")
        elif not operation.backward:
            raise ValueError(f"{plan.semantics}: its backward cannot be verified")
        operation = operation._replace(
            box_gradient=box_gradient_of(plan.semantics) if by_boxes else ""
        )
        self.forward = operation.only_forward
        self.backward = operation._replace(forward="", box_gradient="")
        self.backward_boxes = operation._replace(forward="", backward="")
        self.library = library_of(calls, operation, plan.fixed, plan.semantics)
        oracle = oracle_of(plan.semantics)
        answers = in_box_type(oracle.operation, plan.box_dtype)
        if not has_backward:
            answers = answers._replace(backward="")
        if not by_boxes:
            answers = answers._replace(box_gradient="")
        self.oracle = oracle._replace(operation=answers)
        self.allowed = {
            result: chosen(tolerances, name, plan.semantics, plan.dtype, result)
            for result in RESULTS
        }

    def outcomes(self) -> Iterator[Outcome]:
        """Make every call of the plan."""
        for name, case in self.plan.calls():
            yield self.examine(name, case)

    def examine(self, name: str, case: Case) -> Outcome:
        """Make a call, forward and backward, and compare its results."""
        argmax: dict[str, Any] = {}
        got: Results = {}
        what = "pooled"
        try:
            got = run(case, self.library, self.forward)
            if self.backward.backward:
                what = "gradient"
                argmax = self._right_argmax(case)
                got |= run(case, self.library, self.backward, **argmax)
            if self.backward_boxes.box_gradient:
                what = "box_gradient"
                got |= self._box_gradient(case)
            problem = self._misshapen(case, got)
        except Misbehaviour as error:
            return Outcome(name, case, {}, None, (_failure(error.kind, what, str(error)),))
        if problem is not None:
            return Outcome(name, case, {}, None, (problem,))
        right = argmax.get("argmax")
        findings = tuple(self._compared(case, got, self.oracle, right, self._slack))
        outcome = Outcome(name, case, got, right, findings)
        return outcome if self.strict or not outcome.failures else self._forgiven(outcome)

    def follows(
        self, outcome: Outcome, result: str, oracle: Oracle, *, rounded: bool = False
    ) -> bool:
        """Return whether a result of a call agrees with another oracle.

        With `rounded`, coordinates may be rounded differently, as in right results. Weights of a
        changed rule may be negative, so the tolerance for sums is larger than for right results.
        """
        case = outcome.case
        largest = np.abs(case.maps)[np.isfinite(case.maps)].max(initial=0.0)
        sizes = {"pooled": largest, "gradient": np.abs(case.grad).sum()}
        real: Any = case.real
        if dtypes()[case.dtype].itemsize == 2:
            real = oracle.operation.fixed.get("coordinate_dtype", real)
        rounding = ROUNDINGS * float(np.finfo(real).eps)

        def slack(result: str, expected: Array) -> Array | float:
            return self._slack(result, expected) + rounding * sizes.get(result, 0.0) + margin

        try:
            with np.errstate(all="ignore"):
                margin = self._kinks(outcome) if result == "box_gradient" else 0.0
                got = {name: array for name, array in outcome.got.items() if is_part(name, result)}
                alone = only(oracle, result)
                if rounded and not self.strict and result in ("pooled", "gradient"):
                    margin = self._moved_by(outcome, alone, result, moved(case))
                findings = self._compared(case, got, alone, outcome.argmax, slack)
        except Exception:  # noqa: BLE001 - a changed rule may read beyond a map or exceed a limit
            return False
        return bool(findings) and not any(finding.comparison.problem for finding in findings)

    def _compared(
        self, case: Case, got: Results, oracle: Oracle, argmax: Array | None, slack: Slack
    ) -> list[Finding]:
        comparisons = against_oracle(case, got, oracle, argmax=argmax, slack=slack)
        return [Finding("oracle", what, comparison) for what, comparison in comparisons]

    def _slack(self, result: str, expected: Array) -> Array | float:
        tolerance = self.allowed.get(result)
        if tolerance is None or not (tolerance.atol or tolerance.rtol):
            return 0.0
        finite: Array = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return tolerance.atol + tolerance.rtol * finite

    def _box_gradient(self, case: Case) -> Results:
        """Return the gradient of boxes, or an empty dict if it is missing but optional."""
        try:
            got = run(of_box_gradient(case), self.library, self.backward_boxes)
        except Misbehaviour as error:
            if self._by_boxes == IF_DIFFERENTIABLE and error.kind in ("has no gradient", "raises"):
                return {}
            raise
        gradient = got["box_gradient"]
        if self._by_boxes != BY_FUNCTION and gradient.ndim == 2:  # autograd includes batch indices
            got["box_gradient"] = gradient[:, -_coordinates(case) :]
        return got

    def _right_argmax(self, case: Case) -> dict[str, Any]:
        """Return roipool's argmax, which is passed to the backward."""
        names = [name for name in self.forward.returns if name != "pooled"]
        if not names:
            return {}
        right = run(case, roipool, self.forward)
        return {name: right[name] for name in names}

    def _misshapen(self, case: Case, got: Results) -> Finding | None:
        """Return a finding for wrong shapes or types, or None."""
        if "pooled" not in got:
            return _failure("returns nothing", "pooled", "returns nothing")
        shapes = {"gradient": case.maps.shape, "box_gradient": (len(case.rois), _coordinates(case))}
        for name, array in got.items():
            shape = shapes.get(name, case.grad.shape)
            if array.shape != shape:
                what = f"{name} has shape {array.shape}, not {shape}"
                return _failure("wrong shape", name, what)
            wanted = dtypes()[case.dtype]
            if name == "box_gradient" and array.dtype == case.real:
                continue  # roipool's type; autograd returns the type of the boxes
            if not name.startswith("argmax") and array.dtype != wanted:
                return _failure(
                    "wrong dtype", name, f"{name} has dtype {array.dtype}, not {wanted}"
                )
        return None

    def _forgiven(self, outcome: Outcome) -> Outcome:
        """Return an outcome without the failures that a different rounding explains."""
        wrong = {finding.what for finding in outcome.failures}
        margins = self._margins(outcome, wrong)

        def slack(result: str, expected: Array) -> Array | float:
            return self._slack(result, expected) + margins.get(result, 0.0)

        again = self._compared(outcome.case, outcome.got, self.oracle, outcome.argmax, slack)
        findings = tuple(
            lenient if exact.comparison.problem else exact
            for exact, lenient in zip(outcome.findings, again, strict=True)
        )
        still = {finding.what for finding in findings if finding.comparison.problem}
        return replace(outcome, findings=findings, rounded=frozenset(wrong - still))

    def _margins(self, outcome: Outcome, results: Collection[str]) -> dict[str, Array | float]:
        """Return, for each result, the change that rounding coordinates may cause."""
        margins: dict[str, Array | float] = {}
        for name in {"pooled", "gradient"}.intersection(results):
            oracle = only(self.oracle, name)
            margins[name] = self._moved_by(outcome, oracle, name, moved(outcome.case))
        if "box_gradient" in results:
            margins["box_gradient"] = self._kinks(outcome)
        return margins

    def _kinks(self, outcome: Outcome) -> Array | float:
        """Return the difference of box gradients to both sides of a kink.

        A sample on a cell's centre, or a side held at one cell, has different slopes to its two
        sides; implementations may return either or a value in between.
        """
        if self.strict:
            return 0.0
        if outcome.case not in self._kinks_of:
            around = moved(outcome.case, KINKS, even_if_exact=True)
            oracle = only(self.oracle, "box_gradient")
            margin = self._moved_by(outcome, oracle, "box_gradient", around)
            self._kinks_of[outcome.case] = margin
        return self._kinks_of[outcome.case]

    def _moved_by(
        self, outcome: Outcome, oracle: Oracle, result: str, around: Iterator[Case]
    ) -> Array | float:
        """Return how much an oracle's result changes over the cases `around` the outcome's."""
        right = self.expected(outcome, outcome.case, oracle)[result]
        axes = {"pooled": (1, 2, 3), "gradient": (0, 1, 2, 3), "box_gradient": 1}[result]
        margin: Array | float = 0.0
        for case in around:
            other = self.expected(outcome, case, oracle)[result]
            with np.errstate(invalid="ignore"):
                change = np.nan_to_num(np.abs(other - right), posinf=0.0)
            most = SLACK * change.max(axis=axes, keepdims=True, initial=0.0)
            margin = np.maximum(margin, most)
        return margin

    def expected(self, outcome: Outcome, case: Case, oracle: Oracle) -> Results:
        """Return an oracle's results for a case, with the argmax of an outcome."""
        argmax = outcome.argmax
        more: dict[str, Any] = {} if argmax is None else {"argmax": argmax.astype(np.int64)}
        with np.errstate(all="ignore"):
            return oracle.finish(case, ask(case, oracle, **more))


def is_part(name: str, result: str) -> bool:
    """Return whether `name` is a result, or a coordinate of the argmax."""
    return name == result or (result == "argmax" and name.startswith("argmax_"))


def only(oracle: Oracle, result: str) -> Oracle:
    """Return an oracle that computes only what a result needs."""
    operation = oracle.operation
    if result != "gradient":
        operation = operation._replace(backward="")
    if result != "box_gradient":
        operation = operation._replace(box_gradient="")
    return oracle._replace(operation=operation)


def moved(
    case: Case, directions: Sequence[Sequence[int]] = MOVES, *, even_if_exact: bool = False
) -> Iterator[Case]:
    """Yield cases that differ only by roundings of coordinates."""
    if case.real is np.float32:
        yield replace(case, dtype="float64")
    if not (even_if_exact or rounds(case)):
        return
    step = STEPS * float(np.finfo(case.real).eps)
    with np.errstate(all="ignore"):
        size = np.abs(case.rois[:, 1:]).max(axis=1, keepdims=True, initial=1.0) * step
    for signs in directions:
        table = case.rois.copy()
        with np.errstate(all="ignore"):
            table[:, 1:5] += size * np.array(signs)
        yield replace(case, rois=table)


def _coordinates(case: Case) -> int:
    """Return the number of coordinates of a box's gradient."""
    return 5 if SEMANTICS[case.operation].samples == "points" else 4


def rounds(case: Case) -> bool:
    """Return whether computing the positions of a call's samples or cells needs rounding."""
    real, boxes = case.real, case.rois[:, 1:]
    scale = case.options.get("spatial_scale", 1.0)
    with np.errstate(all="ignore"):
        scaled = boxes.astype(real) * real(scale)
        exact = np.where(np.isfinite(boxes), boxes * np.float64(scale), 0.0)
        if (np.where(np.isfinite(boxes), scaled, 0.0) != exact).any():
            return True
    kind = SEMANTICS[case.operation].samples
    if kind == "cells":
        return False
    if kind in ("one", "points", "area"):
        return True
    ratio = case.options.get("sampling_ratio", 0)
    numbers = [*case.size, *(ratio if isinstance(ratio, tuple) else (ratio,))]
    return any(number < 1 or number & (number - 1) for number in numbers)


def _failure(kind: str, what: str, problem: str) -> Finding:
    return Finding(kind, what, Comparison(1, 0, 1, float("inf"), problem))
