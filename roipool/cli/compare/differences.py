"""Running the systems, and saying how far their outputs lie apart."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roipool.cli.compare.systems import Options, System

__all__ = ["Comparison", "Difference", "Group", "Result", "compare", "difference", "distance"]

FloatArray = NDArray[np.float32]

_TIMED_RUNS = 3


@dataclass(frozen=True)
class Difference:
    """How far one output lies from another.

    Attributes
    ----------
    greatest, mean : float
        Of the absolute difference over all elements; inf where one output has a NaN or an
        infinity and the other has not. A NaN equals a NaN in the same place.
    differing : int
        How many elements are not equal.
    within : bool
        Whether every element is within the tolerance.
    """

    greatest: float
    mean: float
    differing: int
    within: bool


@dataclass(frozen=True)
class Result:
    """What became of one system: a time and a group, or the reason why not."""

    name: str
    seconds: float = 0.0
    group: int = -1
    error: str | None = None


@dataclass
class Group:
    """Systems whose outputs are equal bit for bit, and that output."""

    letter: str
    output: FloatArray
    members: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """Every system's result, the groups, and the difference of each pair of groups.

    Attributes
    ----------
    results : list of Result
        In the order the systems were asked for.
    groups : list of Group
        In the order of their first member.
    reference : str
        The system the others are measured against.
    pairs : dict
        From ``(group, against)``, two indices into `groups`, to their `Difference`. The
        tolerance is relative to ``against``: the reference's group where it takes part.
    """

    results: list[Result]
    groups: list[Group]
    reference: str
    pairs: dict[tuple[int, int], Difference]

    @property
    def reference_group(self) -> int:
        """Index of the group that the reference belongs to."""
        return next(result.group for result in self.results if result.name == self.reference)

    def between(self, first: int, second: int) -> Difference:
        """Return the difference of two groups, given in either order."""
        if first == second:
            return _NO_DIFFERENCE
        pair = (first, second)
        return self.pairs[pair] if pair in self.pairs else self.pairs[second, first]

    def to_reference(self, result: Result) -> Difference:
        """Return the difference of a system that ran to the reference."""
        return self.between(result.group, self.reference_group)

    def all_pairs(self) -> Iterator[tuple[Result, Result, Difference]]:
        """Yield each pair of systems that ran, the one compared against second."""
        home = self.reference_group
        ran = [result for result in self.results if result.error is None]
        # The order of the groups, so that the tolerance is relative to the system named second.
        ran.sort(key=lambda r: (r.name != self.reference, r.group != home, r.group))
        for i, against in enumerate(ran):
            for result in ran[i + 1 :]:
                yield result, against, self.between(result.group, against.group)


_NO_DIFFERENCE = Difference(0.0, 0.0, 0, True)


def compare(
    systems: Mapping[str, System],
    features: FloatArray,
    rois: FloatArray,
    options: Options,
    *,
    reference: str | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> Comparison:
    """Run systems on the same input and compare their outputs.

    Parameters
    ----------
    systems : mapping of str to System
        Those to run, by name, in their order.
    features : (N, C, H, W) float32 ndarray
        The map.
    rois : (K, 5) float32 ndarray
        Rows ``[batch_index, x1, y1, x2, y2]``.
    options : Options
        What to compute.
    reference : str, optional
        One of `systems`. By default ``roipool.roi_align`` where it ran, else the first that ran.
    rtol, atol : float
        An element is within tolerance if it differs by at most ``atol + rtol * |reference|``.

    Returns
    -------
    Comparison
        Systems that reject the input are in it with their reason.

    Raises
    ------
    ValueError
        If every system rejects the input, or if the reference asked for does.
    """
    results: list[Result] = []
    groups: list[Group] = []
    for name, system in systems.items():
        results.append(_run(name, system, features, rois, options, groups))
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
    return Comparison(results, groups, reference, pairs)


def difference(output: FloatArray, reference: FloatArray, rtol: float, atol: float) -> Difference:
    """Measure how far ``output`` lies from ``reference``, two arrays of one shape."""
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
    )


def distance(output: FloatArray, reference: FloatArray) -> NDArray[np.float64]:
    """Return ``|output - reference|``: 0 for a NaN in both, inf for a NaN in only one of them."""
    # float64, so that the difference of two large float32 values neither rounds nor overflows.
    a, b = output.astype(np.float64), reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    apart[np.isnan(apart)] = np.inf
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return apart


def _run(
    name: str,
    system: System,
    features: FloatArray,
    rois: FloatArray,
    options: Options,
    groups: list[Group],
) -> Result:
    def call() -> FloatArray:
        return np.asarray(system(features, rois, options), dtype=np.float32)

    shape = (len(rois), features.shape[1], *options.output_size)
    try:
        with np.errstate(all="ignore"):
            output = call()
            if output.shape != shape:
                raise ValueError(f"answered with shape {output.shape} instead of {shape}")
            seconds = _median_seconds(call)
    except Exception as error:  # noqa: BLE001 - a refusal, or a bug, is a result like any other
        return Result(name, error=_reason(error))
    return Result(name, seconds, _group_of(name, output, groups))


def _median_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_TIMED_RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


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
    """Count A ... Z, AA, AB ... as spreadsheets do."""
    letters = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def _reference(results: list[Result], name: str | None) -> str:
    ran = [result.name for result in results if result.error is None]
    failed = {result.name: result.error for result in results if result.error is not None}
    if not ran:
        first = results[0]
        raise ValueError(f"no system accepts this input; {first.name}: {first.error}")
    if name in failed:
        raise ValueError(f"the reference {name} does not accept this input: {failed[name]}")
    if name is not None:
        return name
    return "roipool.roi_align" if "roipool.roi_align" in ran else ran[0]
