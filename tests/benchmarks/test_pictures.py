"""benchmarks/pictures.py: its boxes, and its comparison of crops."""

from __future__ import annotations

import numpy as np
import pictures
import pytest
from pictures import LIBRARIES, WORKLOADS, Task, Workload, measure, task_of


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the other libraries, which may be installed, and most of the photograph."""
    monkeypatch.setattr(pictures, "HEIGHT", 320)
    monkeypatch.setattr(pictures, "WIDTH", 400)
    for name in ("OpenCV", "Pillow", "torchvision"):
        monkeypatch.delitem(LIBRARIES, name)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_each_workload_is_measured(workload: Workload) -> None:
    task = task_of(workload, 16)
    left, top, right, bottom = task.boxes.T
    assert (left >= 0).all()
    assert (right <= 400).all()
    assert (bottom <= 320).all()
    assert ((right - left > 16) == (workload.name != "larger")).all()
    assert (bottom > top).all()
    rows = measure(task, 1, 2)
    assert [row.library for row in rows] == [
        "roipool",
        "roipool, float32 crops",
        "roipool, float32 picture",
    ]
    assert [len(row.seconds) for row in rows] == [2, 2, 2]
    assert rows[0].levels == pytest.approx(0.5, abs=0.01)


def test_other_crops_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(task: Task, threads: int) -> tuple[str, pictures.Crop]:
        return "0", lambda: np.zeros((len(task.boxes), task.crop, task.crop, 3), np.uint8)

    monkeypatch.setitem(LIBRARIES, "Wrong", wrong)
    with pytest.raises(AssertionError, match="Wrong's crops differ by"):
        measure(task_of(WORKLOADS[0], 16), 1, 1)


def test_a_library_that_is_not_installed_has_no_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(task: Task, threads: int) -> tuple[str, pictures.Crop]:
        raise ModuleNotFoundError("No module named 'absent'")

    monkeypatch.setitem(LIBRARIES, "Absent", absent)
    rows = measure(task_of(WORKLOADS[0], 16), 1, 1)
    assert "Absent" not in [row.library for row in rows]
    assert "Absent is left out: No module named 'absent'" in capsys.readouterr().err
