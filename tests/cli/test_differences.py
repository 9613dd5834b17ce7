"""Differences of two outputs, their pairs, and the timing of calls, apart from the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from roipool.tools.compare import differences
from roipool.tools.compare.differences import compare, difference
from roipool.tools.compare.problem import Options, Problem

nan, inf = float("nan"), float("inf")
BOX = np.array([[0, 0.0, 0, 1, 1]], np.float32)


def problem() -> Problem:
    return Problem(np.zeros((1, 1, 4, 4), np.float32), BOX, Options((1, 1)))


def constant(value: float) -> Callable[[Problem, str], Any]:
    return lambda problem, part: np.full(problem.shape_of(part), value, np.float32)


@pytest.mark.parametrize(
    ("output", "reference", "within"),
    [
        (1.5, 1, True),  # of the reference, half is allowed
        (2, 1, False),  # of the output, a half would be enough
        (1, 2, True),
        (1, 2.5, False),
        (-1.5, -1, True),
        (-2, -1, False),
        (0.5, 0, False),
        (nan, nan, True),
        (nan, 1, False),
        (1, nan, False),
        (inf, inf, True),
        (inf, -inf, False),
        (1, inf, False),
    ],
)
def test_the_tolerance_is_relative_to_the_reference(
    output: float, reference: float, within: bool
) -> None:
    arrays = (np.array([0, value], np.float32) for value in (output, reference))
    assert difference(*arrays, rtol=0.5, atol=0).within == within


@pytest.mark.parametrize(("atol", "within"), [(0.5, True), (0.25, False)])
def test_the_absolute_tolerance_is_added(atol: float, within: bool) -> None:
    two, one = np.full(3, 2, np.float32), np.ones(3, np.float32)
    assert difference(two, one, rtol=0.5, atol=atol).within == within


@pytest.mark.parametrize("turned", [False, True])
def test_ulps_are_those_of_the_larger_number(turned: bool) -> None:
    arrays = [np.array([value], np.float32) for value in (1, 4)]
    found = difference(*(arrays[::-1] if turned else arrays), rtol=0, atol=0)
    assert found.ulps == 3 * 2**21  # 4's is 2^-21


def test_every_pair_is_measured_against_the_reference_if_it_is_one_of_them() -> None:
    values = {"two": 2, "one": 1, "also one": 1, "four": 4}
    systems = {name: constant(value) for name, value in values.items()}
    found = compare(systems, problem(), reference="one", rtol=1, atol=0)
    assert found is not None
    home = found.reference_group
    assert [group.members for group in found.groups] == [["two"], ["one", "also one"], ["four"]]
    assert set(found.pairs) == {(0, home), (2, home), (2, 0)}
    assert {pair: each.within for pair, each in found.pairs.items()} == {
        (0, home): True,  # |2 - 1| <= 1
        (2, home): False,  # |4 - 1| > 1, but |1 - 4| <= 4
        (2, 0): True,
    }


@pytest.mark.parametrize(
    ("seconds", "calls", "told"),
    [
        ([0.03, 0.01, 0.02, 0.04], 4, 0.02),  # a short call: the median of three more
        ([0.0499, 0.01, 0.06, 0.03], 4, 0.03),
        ([0.05], 1, 0.05),  # a long one
        ([7.0], 1, 7.0),
    ],
)
def test_short_calls_are_timed_again(
    seconds: list[float], calls: int, told: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, made = 0.0, 0

    def system(problem: Problem, part: str) -> Any:
        nonlocal now, made
        now += seconds[made]
        made += 1
        return np.zeros(problem.shape_of(part), np.float32)

    monkeypatch.setattr(differences.time, "perf_counter", lambda: now)
    found = compare({"system": system}, problem())
    assert found is not None
    assert made == calls
    assert found.results[0].seconds == pytest.approx(told)
