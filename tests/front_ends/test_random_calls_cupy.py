"""Random calls in CuPy's guises, on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from _support import emulator

from roipool import _cpu
from roipool._arrays import _cupy
from roipool.tools.random_calls.front_ends import (
    FRONT_END_ROWS,
    ROWS,
    guises,
    guises_of_call,
)
from roipool.tools.random_calls.tasks import CallRange, CallsReport, run_task

GUISES = ("as written", "memory", "types", "out")
CALLS = 250


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active():
        yield


def made(first: int, last: int, rows: tuple[str, ...] = ROWS) -> CallsReport:
    isa = _cpu.instruction_set()
    return run_task(CallRange(3, first, last, rows, isa, tiny=True, front_ends=("cupy",)))


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, CALLS, 50))
def test_random_calls(first: int) -> None:
    report = made(first, first + 50)
    assert not report.failures, "\n".join(report.lines)
    assert report.calls.total() == 50
    assert set(report.by_subject) == {f"cupy: {name}" for name in GUISES}


def test_every_guise_is_had() -> None:
    had = {guises_of_call(number, ["cupy"])[0] for number in range(8)}
    assert had == set(guises("cupy")) == {f"cupy: {name}" for name in GUISES}


@pytest.mark.thorough
def test_a_wrong_front_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end that reads reversed views in the wrong order; `compat` makes views itself."""
    right = _cupy.readable

    def wrong(array: Any, dtype: Any) -> Any:
        found = right(array, dtype)
        return found if array.flags.c_contiguous else found[..., ::-1]

    monkeypatch.setattr(_cupy, "readable", wrong)
    failures = made(25, 50, FRONT_END_ROWS).failures
    assert {subject for _, subject in failures} == {"cupy: memory"}
