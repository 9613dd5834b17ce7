"""One call of an implementation, and how its answers compare with the oracle's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import roipool
from roipool.libraries.functions import Misbehaviour
from roipool.verification.differential.calling import Results, run
from roipool.verification.differential.case import Array, Case, dtypes
from roipool.verification.differential.checking import Finding
from roipool.verification.differential.operations import OPERATIONS
from roipool.verification.differential.oracle import Oracle, Slack, against_oracle, oracle_of
from roipool.verification.tolerance import Comparison

from .calls import Plan, in_box_type
from .implementations import Calls, library_of
from .tolerances import Tolerance, chosen

# By what coordinates are moved to learn what rounding them otherwise may change: a few roundings.
STEPS = 8
ROUNDINGS = 16  # of a sum, of the size of its largest term
SLACK = 4  # times what such moves change


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a call gave.

    Attributes
    ----------
    name : str
        Of the call.
    case : Case
        Its arguments.
    got : dict
        The results, in NCHW.
    argmax : ndarray or None
        What the gradient of a maximum was computed from.
    findings : tuple of Finding
        One for each result; for a misbehaviour one whose subject is its kind.
    rounded : frozenset of str
        Results that are right but for the rounding of positions.
    """

    name: str
    case: Case
    got: Results
    argmax: Array | None
    findings: tuple[Finding, ...]
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
    """Makes calls of one implementation and compares them.

    Parameters
    ----------
    plan : Plan
        Which calls.
    calls : Calls
        The implementation.
    has_backward : bool
        Whether it has one that is to be examined.
    name : str
        The implementation's, for tolerances.
    tolerances : sequence of Tolerance
        What is allowed besides roundings.
    strict : bool
        Whether positions must be rounded as in the original, too.
    """

    def __init__(
        self,
        plan: Plan,
        calls: Calls,
        *,
        has_backward: bool = False,
        name: str = "",
        tolerances: Sequence[Tolerance] = (),
        strict: bool = False,
    ) -> None:
        self.plan, self.calls, self.strict = plan, calls, strict
        operation = in_box_type(OPERATIONS[plan.semantics], plan.box_dtype)
        if not has_backward:
            operation = operation._replace(backward="")
        elif not operation.backward:
            raise ValueError(f"{plan.semantics}: its backward cannot be verified")
        self.forward = operation._replace(backward="", box_gradient="")
        self.backward = operation._replace(forward="", box_gradient="")
        self.library = library_of(calls, operation, plan.fixed, plan.semantics)
        oracle = oracle_of(plan.semantics)
        linear = in_box_type(oracle.operation, plan.box_dtype)._replace(box_gradient="")
        if not has_backward:
            linear = linear._replace(backward="")
        self.oracle = oracle._replace(operation=linear)
        self.allowed = {
            result: chosen(tolerances, name, plan.semantics, plan.dtype, result)
            for result in ("pooled", "gradient", "argmax")
        }

    def outcomes(self) -> Iterator[Outcome]:
        """Make every call of the plan."""
        for name, case in self.plan.calls():
            yield self.examine(name, case)

    def examine(self, name: str, case: Case) -> Outcome:
        """Make a call, forward and backward, and compare."""
        argmax: dict[str, Any] = {}
        got: Results = {}
        try:
            got = run(case, self.library, self.forward)
            if self.backward.backward:
                argmax = self._right_argmax(case)
                got |= run(case, self.library, self.backward, **argmax)
            problem = self._misshapen(case, got)
        except Misbehaviour as error:
            what = "gradient" if "pooled" in got else "pooled"
            return Outcome(name, case, {}, None, (_failure(error.kind, what, str(error)),))
        if problem is not None:
            return Outcome(name, case, {}, None, (problem,))
        right = argmax.get("argmax")
        findings = tuple(self._compared(case, got, self.oracle, right, self._slack))
        outcome = Outcome(name, case, got, right, findings)
        return outcome if self.strict or not outcome.failures else self._forgiven(outcome)

    def follows(self, outcome: Outcome, result: str, oracle: Oracle) -> bool:
        """Return whether a result of a call is what another oracle gives.

        Weights of a changed rule may be negative, so that sums are rounded more than their terms
        tell.
        """
        case = outcome.case
        largest = np.abs(case.maps)[np.isfinite(case.maps)].max(initial=0.0)
        sizes = {"pooled": largest, "gradient": np.abs(case.grad).sum()}
        real: Any = case.real
        if dtypes()[case.dtype].itemsize == 2:
            real = oracle.operation.fixed.get("coordinate_dtype", real)
        rounding = ROUNDINGS * float(np.finfo(real).eps)

        def slack(result: str, expected: Array) -> Array | float:
            return self._slack(result, expected) + rounding * sizes.get(result, 0.0)

        try:
            with np.errstate(all="ignore"):
                every = self._compared(case, outcome.got, oracle, outcome.argmax, slack)
        except Exception:  # noqa: BLE001 - a changed rule may read beyond a map, or never end
            return False
        found = [finding for finding in every if finding.what.split()[0] == result]
        return bool(found) and not any(finding.comparison.problem for finding in found)

    def _compared(
        self, case: Case, got: Results, oracle: Oracle, argmax: Array | None, slack: Slack
    ) -> list[Finding]:
        found = against_oracle(case, got, oracle, argmax=argmax, slack=slack)
        return [Finding("oracle", what, comparison) for what, comparison in found]

    def _slack(self, result: str, expected: Array) -> Array | float:
        tolerance = self.allowed.get(result)
        if tolerance is None or not (tolerance.atol or tolerance.rtol):
            return 0.0
        finite: Array = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return tolerance.atol + tolerance.rtol * finite

    def _right_argmax(self, case: Case) -> dict[str, Any]:
        """Return the argmax that a backward is given: roipool's own."""
        names = [name for name in self.forward.returns if name != "pooled"]
        if not names:
            return {}
        right = run(case, roipool, self.forward)
        return {name: right[name] for name in names}

    def _misshapen(self, case: Case, got: Results) -> Finding | None:
        """Return what is wrong with shapes and types."""
        if "pooled" not in got:
            return _failure("returns nothing", "pooled", "returns nothing")
        shapes = {"gradient": case.maps.shape}
        for name, array in got.items():
            shape = shapes.get(name, case.grad.shape)
            if array.shape != shape:
                what = f"{name} has shape {array.shape}, not {shape}"
                return _failure("wrong shape", name, what)
            wanted = dtypes()[case.dtype]
            if not name.startswith("argmax") and array.dtype != wanted:
                return _failure(
                    "wrong dtype", name, f"{name} has dtype {array.dtype}, not {wanted}"
                )
        return None

    def _forgiven(self, outcome: Outcome) -> Outcome:
        """Return an outcome without the failures that rounding positions otherwise explains."""
        wrong = {finding.what for finding in outcome.failures}
        margins = self._margins(outcome)

        def slack(result: str, expected: Array) -> Array | float:
            return self._slack(result, expected) + margins.get(result, 0.0)

        again = self._compared(outcome.case, outcome.got, self.oracle, outcome.argmax, slack)
        findings = tuple(
            lenient if exact.comparison.problem else exact
            for exact, lenient in zip(outcome.findings, again, strict=True)
        )
        still = {finding.what for finding in findings if finding.comparison.problem}
        return replace(outcome, findings=findings, rounded=frozenset(wrong - still))

    def _margins(self, outcome: Outcome) -> dict[str, Array | float]:
        """Return what the rounding of positions may change of each result."""
        right = self.expected(outcome, outcome.case, self.oracle)
        margins: dict[str, Array | float] = {}
        for case in moved(outcome.case):
            other = self.expected(outcome, case, self.oracle)
            for name in ("pooled", "gradient"):
                if name in right:
                    with np.errstate(invalid="ignore"):
                        change = np.nan_to_num(np.abs(other[name] - right[name]), posinf=0.0)
                    axes = (1, 2, 3) if name == "pooled" else (0, 1, 2, 3)
                    most = SLACK * change.max(axis=axes, keepdims=True, initial=0.0)
                    margins[name] = np.maximum(margins.get(name, 0.0), most)
        return margins

    def expected(self, outcome: Outcome, case: Case, oracle: Oracle) -> Results:
        """Return what an oracle answers to a case, in place of that of an outcome."""
        fixed = oracle.operation.fixed
        more: dict[str, Any] = {"coordinate_dtype": fixed.get("coordinate_dtype", case.real)}
        if outcome.argmax is not None:
            more["argmax"] = outcome.argmax.astype(np.int64)
        with np.errstate(all="ignore"):
            plain = replace(oracle.prepare(case), dtype="float64", layout="NCHW")
            found = run(plain, roipool.reference, oracle.operation, **more)
            return oracle.finish(case, found)


def moved(case: Case) -> Iterator[Case]:
    """Yield cases that are the same but for roundings of positions."""
    if case.real is np.float32:
        yield replace(case, dtype="float64")
    if not rounds(case):
        return
    step = STEPS * float(np.finfo(case.real).eps)
    with np.errstate(all="ignore"):
        size = np.abs(case.rois[:, 1:]).max(axis=1, keepdims=True, initial=1.0) * step
    for signs in ((1, 1, 1, 1), (-1, -1, -1, -1), (-1, -1, 1, 1)):
        table = case.rois.copy()
        with np.errstate(all="ignore"):
            table[:, 1:] += size * np.array(signs)
        yield replace(case, rois=table)


def rounds(case: Case) -> bool:
    """Return whether the positions of a call's samples or cells cannot be computed exactly."""
    real, boxes = case.real, case.rois[:, 1:]
    scale = case.options.get("spatial_scale", 1.0)
    with np.errstate(all="ignore"):
        scaled = boxes.astype(real) * real(scale)
        exact = np.where(np.isfinite(boxes), boxes * np.float64(scale), 0.0)
        if (np.where(np.isfinite(boxes), scaled, 0.0) != exact).any():
            return True
    kind = OPERATIONS[case.operation].samples
    if kind == "cells":
        return False
    if kind in ("one", "points", "area"):
        return True
    ratio = case.options.get("sampling_ratio", 0)
    numbers = [*case.size, *(ratio if isinstance(ratio, tuple) else (ratio,))]
    return any(number < 1 or number & (number - 1) for number in numbers)


def _failure(kind: str, what: str, problem: str) -> Finding:
    return Finding(kind, what, Comparison(1, 0, 1, float("inf"), problem))
