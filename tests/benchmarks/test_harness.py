"""The benchmark harness: turns, verdicts, workloads and the memory that a call must move.

Reports, plots and the other programs in benchmarks/ are tested by whoever updates the results with
them.
"""

from __future__ import annotations

from typing import Any

import bench
import numpy as np
import pytest
from _support.cli_runs import names_here, strict_json
from harness import floor, ours
from harness.devices import Cpu
from harness.workloads import WORKLOADS, changed, task_of

import roipool
from roipool import reference
from roipool.tools.libraries import LIBRARIES, InstalledLibrary, LevelTask, Task, prepared

ONE = "--boxes 3 --channels 2 --repeat 2 --workload W4a --ops roi_pool".split()

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("same_threads_after")]


class Here(Cpu):
    """The CPU, with small buffers for the measurement of its memory."""

    def bandwidth(self, threads: int) -> float:
        return floor.memory_bandwidth(threads, 1 << 16)


class Stub(InstalledLibrary):
    """A library that returns roipool's results plus an offset."""

    modules, operations, layouts = ("numpy",), ("roi_pool",), ("NCHW", "NHWC")
    offset = 0.0

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self.threads = threads

    def prepare(self, task: Task) -> Any:
        return ours.prepare(task)

    def arrays(self, task: Task, results: Any) -> Any:
        return [result + result.dtype.type(self.offset) for result in results]


def rows_of(
    stub: type[InstalledLibrary], *arguments: str, device: type[Cpu] = Here
) -> list[dict[str, Any]]:
    arguments = (*ONE, "--peers", "stub", *arguments, "--json", "out.json")
    assert bench.main(arguments, {**LIBRARIES, "stub": stub}, lambda backend: device()) == 0
    rows: list[dict[str, Any]] = strict_json("out.json")["rows"]
    return rows


def test_turns_alternate() -> None:
    times = {"roipool": iter([9.0, 0.25, 2.0, 0.5]), "stub": iter([9.0, 1.0, 1.5, 7.0])}
    turns: list[tuple[str, int]] = []
    calls: list[str] = []

    class Noting(Stub):
        def prepare(self, task: Task) -> Any:
            call = super().prepare(task)
            return lambda: [calls.append("stub"), *call()][1:]

    class Clock(Here):
        def __init__(self) -> None:
            self.clocks = {"wall": self.seconds}

        def seconds(self, call: Any, repeats: int) -> float:
            del calls[:]
            call()
            turns.append((calls[0] if calls else "roipool", roipool.get_num_threads()))
            return next(times[turns[-1][0]])

    first, second = rows_of(Noting, "--repeat", "3", "--threads", "3", device=Clock)
    # One more than requested, to warm up.
    assert turns == [("roipool", 3), ("stub", 3)] * 4
    assert (first["library"], first["seconds"]) == ("roipool", [0.25, 2, 0.5])
    assert (second["library"], second["seconds"]) == ("stub", [1, 1.5, 7])
    assert (first["median"], first["ratio"], first["quartiles"]) == (0.5, 1, [0.375, 1.25])
    assert (second["median"], second["ratio"]) == (1.5, 3)
    assert first["floor"] == pytest.approx(first["compulsory_bytes"] / first["bandwidth"])


@pytest.mark.parametrize(("offset", "agrees"), [(0.0, True), (1e-7, True), (0.1, False)])
def test_disagreement_is_said(
    offset: float, agrees: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _, row = rows_of(type("Adding", (Stub,), {"offset": offset}))
    assert row["agreement"]["agrees"] is agrees
    assert row["agreement"]["greatest_difference"] == pytest.approx(offset, abs=2e-7)
    assert ("100 % differ by more than" in capsys.readouterr().out) is not agrees


def test_a_peer_that_refuses() -> None:
    class Refusing(Stub):
        def prepare(self, task: Task) -> Any:
            raise RuntimeError("no kernel\nfor this")

    assert rows_of(Refusing)[1]["absent"] == "refuses this: RuntimeError: no kernel"


@pytest.mark.parametrize(
    "option", ["--workload W9", "--ops roi_align", "--threads 0", "--json missing/out.json"]
)
def test_bad_arguments(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = names_here()
    with pytest.raises(SystemExit) as stopped:
        bench.main([*ONE, *option.split()], LIBRARIES, lambda backend: Here())
    out, err = capsys.readouterr()
    assert (stopped.value.code, out, names_here()) == (2, "", before)
    assert err.rpartition("bench.py: error: ")[2].count("\n") == 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_run(name: str) -> None:
    for backward in (False, True):
        task = task_of(changed(WORKLOADS[name], boxes=3, channels=2), "float32", backward)
        results = ours.prepare(task, False)()
        for level, result in zip(task.levels, results, strict=True):
            pooled = (len(level.rois), 2, *task.output_size)
            if task.layout == "NHWC":
                pooled = (pooled[0], *pooled[2:], pooled[1])
            assert result.shape == (level.features.shape if backward else pooled)
        assert floor.output_bytes(task) == sum(result.nbytes for result in results)


# Two channels of four bytes. Rows 0 to 2 and columns 1 to 2 are covered: 6 cells.
COMPULSORY = [
    ("roi_pool", False, False, 6 * 8 + 4 * 8),
    ("roi_pool", False, True, 6 * 8 + 4 * 16),
    ("roi_pool", True, True, 30 * 8 + 4 * 16),
    ("roi_align", False, False, 6 * 8 + 4 * 8),
    ("roi_align", True, False, 30 * 8 + 4 * 8),
]


@pytest.mark.parametrize(("operation", "backward", "argmax", "expected"), COMPULSORY)
def test_compulsory_bytes_by_hand(
    operation: str, backward: bool, argmax: bool, expected: int
) -> None:
    rois = np.array([[0, 2, 0, 4, 4]], np.float32)
    for layout, shape in (("NCHW", (1, 2, 5, 6)), ("NHWC", (1, 5, 6, 2))):
        levels = [LevelTask(np.zeros(shape, np.float32), rois, None, 0.5)]
        task = Task(operation, backward, "avg", argmax, (2, 2), 1, False, layout, levels)
        assert floor.compulsory_bytes(task) == expected


@pytest.mark.parametrize(("sampling", "aligned"), [(0, True), (3, False)])
def test_our_call_is_what_the_task_says(sampling: int, aligned: bool) -> None:
    rng = np.random.default_rng(0)
    x, grad = rng.standard_normal((2, 3, 9, 11)), rng.standard_normal((4, 3, 2, 4))
    corners = np.sort(rng.uniform(0, 18, (4, 2, 2)), axis=1).reshape(4, 4)
    rois = np.concatenate([[[0], [0], [1], [1]], corners], axis=1)
    levels, place = [LevelTask(x, rois, grad, 0.5)], (0.5, sampling)
    for backward, expected in (
        (False, reference.roi_align(x, rois, (2, 4), *place, aligned=aligned)),
        (True, reference.roi_align_backward(grad, rois, x.shape, *place, aligned=aligned)),
    ):
        task = Task("roi_align", backward, "avg", False, (2, 4), sampling, aligned, "NCHW", levels)
        (found,) = prepared(ours.Roipool(roipool.get_num_threads()), task)()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
