"""Runs implementations, and measures the differences of their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roipool.tools.compare.problem import Compute, Problem, Unavailable
from roipool.tools.compare.systems import rules_of

__all__ = [
    "Difference",
    "Group",
    "PartComparison",
    "Result",
    "compare",
    "difference",
    "distance",
    "ulps",
]

FloatArray = NDArray[np.float32]

_USUAL = ("roipool.roi_align", "roipool.roi_align_3d")  # the reference if it takes part
_TIMED_RUNS = 3
_LONG = 0.05  # seconds; such a call is not repeated


@dataclass(frozen=True)
class Difference:
    """The difference of two outputs."""

    # Absolute differences of all elements; inf if only one output has a NaN or an infinity at an
    # element. NaN equals NaN.
    greatest: float
    mean: float
    differing: int  # number of unequal elements
    within: bool  # whether every element is within the tolerance
    ulps: float = 0.0  # the largest difference in ulps of float32, at the larger of the two values
    where: tuple[int, ...] = ()  # index of the element that differs most; empty if none does


@dataclass(frozen=True)
class Result:
    """The outcome of one implementation: time and group, or the reason for having none.

    `lacks` is true if the implementation does not offer the part, which is not a failure.
    """

    name: str
    seconds: float = 0.0
    group: int = -1
    error: str | None = None
    lacks: bool = False


@dataclass
class Group:
    """Implementations whose outputs are equal bit for bit, and the output."""

    letter: str
    output: FloatArray
    members: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PartComparison:
    """Every implementation's result, the groups, and the difference of each pair of groups."""

    part: str  # the part compared, one of `roipool.tools.compare.problem.PARTS`
    results: list[Result]  # in the order of the implementations
    groups: list[Group]  # in the order of their first members
    reference: str  # the implementation that the others are measured against
    # Maps ``(group, against)``, two indices into `groups`, to their `Difference`. The tolerance is
    # relative to ``against``, which is the reference's group if that is one of the two.
    pairs: dict[tuple[int, int], Difference]

    @property
    def reference_group(self) -> int:
        """Index of the reference's group."""
        return next(result.group for result in self.results if result.name == self.reference)

    def between(self, first: int, second: int) -> Difference:
        """Return the difference of two groups, given in either order."""
        if first == second:
            return _NO_DIFFERENCE
        pair = (first, second)
        return self.pairs[pair] if pair in self.pairs else self.pairs[second, first]

    def to_reference(self, result: Result) -> Difference:
        """Return the difference of a successful result to the reference."""
        return self.between(result.group, self.reference_group)


_NO_DIFFERENCE = Difference(0.0, 0.0, 0, True)


def compare(
    implementations: Mapping[str, Compute],
    problem: Problem,
    part: str = "forward",
    *,
    reference: str | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    tell: Callable[[str], None] = lambda name: None,
) -> PartComparison | None:
    """Run implementations on the same input and compare their results.

    Parameters
    ----------
    part : str
        One of `roipool.tools.compare.problem.PARTS`.
    reference : str, optional
        One of `implementations`. By default, and for a gradient that it lacks,
        ``roipool.roi_align``, or for volumes ``roipool.roi_align_3d``, if it ran, else the first
        average, else the first that ran.
    rtol, atol : float
        An element is within tolerance if it differs by at most ``atol + rtol * |reference|``.
    tell : callable
        Called with the name of each implementation before it runs.

    Returns
    -------
    Comparison or None
        Implementations that reject the input are included, with their reason. None if no
        implementation has the requested gradient.

    Raises
    ------
    ValueError
        If every implementation rejects the input, or if the given reference does.
    """
    results: list[Result] = []
    groups: list[Group] = []
    for name, compute in implementations.items():
        tell(name)
        results.append(_run(name, compute, problem, part, groups))
    if not groups and all(result.lacks for result in results):
        return None
    if part != "forward" and any(result.lacks and result.name == reference for result in results):
        reference = None  # it has no gradient: choose another
    reference = _reference(results, reference)
    home = next(result.group for result in results if result.name == reference)
    order = sorted(range(len(groups)), key=lambda index: index != home)
    pairs = {
        (order[j], order[i]): difference(
            groups[order[j]].output, groups[order[i]].output, rtol, atol
        )
        for i in range(len(order))
        for j in range(i + 1, len(order))
    }
    return PartComparison(part, results, groups, reference, pairs)


def difference(output: FloatArray, reference: FloatArray, rtol: float, atol: float) -> Difference:
    """Measure the difference of two arrays of the same shape."""
    if output.size == 0:
        return _NO_DIFFERENCE
    apart = distance(output, reference)
    with np.errstate(invalid="ignore"):  # 0 * inf
        near = np.isfinite(apart) & (apart <= atol + rtol * np.abs(reference.astype(np.float64)))
    return Difference(
        greatest=float(apart.max()),
        mean=float(apart.mean()),
        differing=int(np.count_nonzero(apart)),
        within=bool((near | (apart == 0)).all()),
        ulps=float(ulps(output, reference, apart).max()),
        where=_where(apart),
    )


def distance(output: FloatArray, reference: FloatArray) -> NDArray[np.float64]:
    """Return ``|output - reference|``: 0 if both are NaN, inf if only one is."""
    # float64, so that the difference of two large float32 values neither rounds nor overflows.
    a, b = output.astype(np.float64), reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    apart[np.isnan(apart)] = np.inf
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return apart


def ulps(
    output: FloatArray, reference: FloatArray, apart: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return differences in ulps of float32, at the larger of the two values."""
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(output), np.abs(reference)).astype(np.float32)
        steps = apart / np.spacing(larger).astype(np.float64)
    steps[apart == 0] = 0.0
    steps[np.isnan(steps)] = np.inf  # one of the two is infinite
    return steps


def _where(apart: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the index of the largest difference, the first of equal ones."""
    most = int(np.argmax(apart))
    if apart.flat[most] == 0:
        return ()
    return tuple(int(index) for index in np.unravel_index(most, apart.shape))


def _run(name: str, compute: Compute, problem: Problem, part: str, groups: list[Group]) -> Result:
    def call() -> FloatArray:
        return np.asarray(compute(problem, part), dtype=np.float32)

    shape = problem.shape_of(part)
    try:
        with np.errstate(all="ignore"):
            output, seconds = _timed(call)
            if output.shape != shape:
                raise ValueError(f"answered with shape {output.shape} instead of {shape}")
            if seconds < _LONG:
                seconds = statistics.median(_timed(call)[1] for _ in range(_TIMED_RUNS))
    except Unavailable as reason:
        return Result(name, error=str(reason), lacks=True)
    except Exception as error:  # noqa: BLE001 - a rejected input or a bug is a result, too
        return Result(name, error=_reason(error))
    return Result(name, seconds, _group_of(name, output, groups))


def _timed(call: Callable[[], FloatArray]) -> tuple[FloatArray, float]:
    start = time.perf_counter()
    output = call()
    return output, time.perf_counter() - start


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _group_of(name: str, output: FloatArray, groups: list[Group]) -> int:
    """Add a system to the group that has its output, or to a new one; return the index."""
    for index, group in enumerate(groups):
        if _same_bits(output, group.output):
            group.members.append(name)
            return index
    groups.append(Group(_letter(len(groups)), output, [name]))
    return len(groups) - 1


def _same_bits(first: FloatArray, second: FloatArray) -> bool:
    both_nan = np.isnan(first) & np.isnan(second)
    same = np.ascontiguousarray(first).view(np.int32) == np.ascontiguousarray(second).view(np.int32)
    return bool((same | both_nan).all())


def _letter(index: int) -> str:
    """Return A ... Z, AA, AB ..., like the columns of a spreadsheet."""
    letters = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def _reference(results: Sequence[Result], name: str | None) -> str:
    ran = [result.name for result in results if result.error is None]
    failed = {result.name: result.error for result in results if result.error is not None}
    if not ran:
        first = next(result for result in results if not result.lacks)
        raise ValueError(f"no system accepts this input; {first.name}: {first.error}")
    if name in failed:
        raise ValueError(f"the reference {name} does not accept this input: {failed[name]}")
    if name is not None:
        return name
    return next((name for name in ran if name in _USUAL), _first_average(ran))


def _first_average(names: Sequence[str]) -> str:
    """Return the first average: beside a maximum, the smaller differences would be lost."""
    for name in names:
        rules = rules_of(name)
        if rules is not None and rules.reduce == "mean":
            return name
    return names[0]
