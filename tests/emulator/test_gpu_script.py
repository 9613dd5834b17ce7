"""scripts/gpu.sh within a number of seconds, with stand-ins for all that it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the script is for Linux")
PROGRAMS = {
    "python": "exit 0",
    "nvidia-smi": "echo stand-in",
    "compute-sanitizer": "exit 0",
    "ncu": "exit 0",
    "timeout": 'shift; exec "$@"',
}
STEPS = [
    "build",
    "jax",
    "tests",
    "verify",
    "calls",
    "detectors",
    "bench-first",
    "first-call",
    "profile",
    "bench",
    "bench-float16",
    "exercise",
    "memcheck",
    "racecheck",
    "verify-everything",
]


def run(
    folder: Path, *arguments: str, passed: int = 0
) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run the script; return what it did, and its steps."""
    programs = folder / "programs"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(ROOT / "scripts/gpu.sh"), *arguments],
        env={
            **os.environ,
            "PATH": path,
            "PYTHON": str(programs / "python"),
            "SECONDS": str(passed),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    file = folder / "steps.json"
    return done, json.loads(file.read_text()) if file.exists() else []


def test_steps_in_the_order_of_their_worth(tmp_path: Path) -> None:
    done, steps = run(tmp_path, "--seconds", "100000", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [step["step"] for step in steps] == STEPS
    assert all(step["status"] == 0 for step in steps)


def test_without_a_number_of_seconds_nothing_is_measured_first(tmp_path: Path) -> None:
    _, steps = run(tmp_path, str(tmp_path))
    assert [step["step"] for step in steps] == [name for name in STEPS if name != "bench-first"]


def test_steps_are_left_out_where_little_time_is_left(tmp_path: Path) -> None:
    """As if 690 seconds had passed already: Bash begins to count where it is told to."""
    done, steps = run(tmp_path, "--seconds", "700", str(tmp_path), passed=690)
    assert done.returncode == 0, done.stderr
    assert [(step["step"], step["status"]) for step in steps] == [(name, None) for name in STEPS]
    assert "bench is left out" in done.stdout


def test_a_step_has_no_more_time_than_is_left(tmp_path: Path) -> None:
    _, steps = run(tmp_path, "--seconds", "700", str(tmp_path), passed=600)
    assert max(step["limit"] for step in steps if step["status"] == 0) <= 100


def test_without_nsight_compute_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = os.environ["PATH"].split(os.pathsep)
    without = [folder for folder in folders if not Path(folder, "ncu").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(without))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delitem(PROGRAMS, "ncu")
    done, steps = run(tmp_path, str(tmp_path), "calls")
    assert done.returncode == 0, done.stderr
    measured = [(name, 0) for name in ("build", "calls", "detectors", "first-call")]
    assert [(step["step"], step["status"]) for step in steps] == [*measured, ("profile", None)]
    assert "profile is left out: there is no ncu" in done.stdout


def test_a_step_needs_time(tmp_path: Path) -> None:
    done, steps = run(tmp_path, "--seconds", "39", str(tmp_path))
    assert (done.returncode, steps) == (2, [])
    assert "--seconds must be at least 40, not '39'" in done.stderr


@pytest.mark.parametrize("seconds", ["", "0", "x", "-3", "1.5"])
def test_seconds_that_are_no_number(tmp_path: Path, seconds: str) -> None:
    done, _ = run(tmp_path, "--seconds", seconds, str(tmp_path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--seconds must be a whole number of seconds, not '{seconds}'" in line
