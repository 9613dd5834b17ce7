"""Random calls in the guises of each library: a few dozen calls of the program."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import roipool
import roipool.tools.random_calls.__main__ as program
from roipool.systems.case import Case
from roipool.tools.random_calls.front_ends import (
    LIBRARIES,
    ROWS,
    guises,
    guises_of_call,
    relation_of,
)
from roipool.tools.random_calls.shrink import first_failure, line_of, shrink_call
from roipool.verification.check import check
from roipool.verification.generate import draw

PROGRAM = (sys.executable, "-P", "-m", "roipool.tools.random_calls")
CALLS = {"torch": 64, "jax": 14, "dask": 96, "cupy": 400}  # of JAX's each compiles programs


def with_library(name: str) -> Any:
    marks = [pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")]
    if name == "cupy":  # test_random_calls_cupy.py runs its guises on a stand-in
        marks.append(pytest.mark.gpu)
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("library", [with_library(name) for name in LIBRARIES])
def test_random_calls(library: str) -> None:
    """A separate process, since JAX's devices are fixed at its start."""
    calls = CALLS[library]
    command = [*PROGRAM, "--front-end", library, "--calls", str(calls), "--jobs", "1", "--tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{calls} calls, [\d,]+ numbers.* failed: none$", done.stdout, re.MULTILINE)


def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["random_calls", "--front-end", "jax", "--calls", "1"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "--front-end jax: it is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("library", [with_library(name) for name in LIBRARIES])
def test_every_guise_is_had(library: str) -> None:
    had = {guises_of_call(number, [library])[0] for number in range(400)}
    assert had == set(guises(library))


@pytest.mark.thorough
def test_every_operation_is_drawn() -> None:
    """Of `compat` as often as of the core."""
    drawn = [draw(0, number, ROWS, tiny=True).operation for number in range(1500)]
    assert set(drawn) == set(ROWS)
    assert 600 < sum("." in name for name in drawn) < 900


def test_a_failure_is_made_small_and_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A front end that loses the last row of bins of every other box."""
    dask = pytest.importorskip("roipool.dask._library")
    right = dask.average_of_chunk

    def wrong(*args: Any) -> Any:
        pooled = right(*args).copy()
        pooled[1::2, :, -1] = 7
        return pooled

    case = Case(
        "roi_align",
        maps=np.random.default_rng(0).integers(1, 99, (2, 2, 5, 6)) / 16,
        grad=np.ones((3, 2, 3, 2)),
        rois=np.array([[1, 0.1, 0.3, 4.7, 4], [1, 1, 1, 2, 9], [1, 1, 1, 1, 1]]),
        options={"spatial_scale": 1.0, "sampling_ratio": 2, "aligned": True},
        variation=5,
    )
    guise = "dask: one after another"
    assert first_failure(case, guise, "pooled") is None
    monkeypatch.setattr(dask, "average_of_chunk", wrong)
    found = next(
        one for one in check(case, [guise], relation_of=relation_of) if one.comparison.problem
    )
    small, failure = shrink_call(case, found)
    assert (len(small.rois), small.maps.shape, small.variation) == (2, (1, 1, 1, 1), 0)
    exec(line_of(small, failure), {})
    assert "numbers are off" in capsys.readouterr().out
    monkeypatch.undo()
    exec(line_of(small, failure), {})
    assert capsys.readouterr().out == "None\n"


def test_an_error_of_a_front_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    dask = pytest.importorskip("roipool.dask._library")
    monkeypatch.setattr(dask, "average_of_chunk", None)
    case = replace(draw(1, 1, ("roi_align",), tiny=True), form="table")
    (found,) = check(case, ["dask: one after another"], roipool, relation_of)
    assert "TypeError" in str(found.comparison.problem)
