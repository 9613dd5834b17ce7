"""benchmarks/busy_cores.py: its rows, and that no busy process remains."""

from __future__ import annotations

import pytest
from busy_cores import Threads, busy_processes, measure, print_rows


def test_rows(capsys: pytest.CaptureFixture[str]) -> None:
    both = [Threads(1), Threads(2, pool=True)]
    rows = measure("small-call", backward=True, busy=1, threads=both, calls=4)
    assert [(row["threads"], row["pool"], row["busy"]) for row in rows] == [
        (1, False, 1),
        (2, True, 1),
    ]
    for row in rows:
        assert row["operation"] == "roi_align_backward"
        assert 0 < row["median"] <= row["p90"]
        assert row["processor"] > 0
    print_rows(rows)
    printed = capsys.readouterr().out
    assert printed.count("roi_align_backward") == 2
    assert "2 pooled threads" in printed


def test_busy_processes_end() -> None:
    with busy_processes(1) as programs:
        assert programs[0].poll() is None
    assert programs[0].poll() is not None
