"""scripts/gpu.sh, with programs that stand in for Python, a compiler and an NVIDIA driver."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from _support.platforms import needs_posix

pytestmark = [needs_posix, pytest.mark.thorough]

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu.sh"
STAGES = {
    "tests": ["build", "verify", "tests"],
    "bench": ["build", "bench", "bench-float16"],
    "sanitize": ["build", "exercise", "memcheck", "racecheck"],
    "everything": ["build", "verify-everything"],
}
MOST_SECONDS = 600
MOST_FILES = 8
# Writes the file after --json, and fails where it is asked to.
PROGRAM = """#!/bin/sh
case "$*" in *"$FAILING"*) [ -z "$FAILING" ] || exit 3 ;; esac
while [ $# -gt 0 ]; do
  if [ "$1" = --json ]; then echo '{}' > "$2"; fi
  shift
done
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    texts = {"nvidia-smi": "#!/bin/sh\necho 'NVIDIA X1'\n"}
    for name in ("python3", "g++", "compute-sanitizer", "nvidia-smi"):
        path = folder / name
        path.write_text(texts.get(name, PROGRAM))
        path.chmod(0o755)
    return folder


def run_script(programs: Path, folder: Path, stage: str, failing: str = "") -> tuple[int, Any]:
    """Run a stage; return its exit status, and its steps."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "FAILING": failing,
        "PYTHON": "python3",
        "CXX": "g++",
    }
    command = ["bash", str(SCRIPT), str(folder), stage]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    steps = folder / "steps.json"
    return result.returncode, json.loads(steps.read_text()) if steps.exists() else result.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_ten_minutes_and_eight_files(
    programs: Path, tmp_path: Path, stage: str
) -> None:
    status, steps = run_script(programs, tmp_path / "results", stage)
    assert status == 0
    assert [step["step"] for step in steps] == STAGES[stage]
    assert sum(step["limit"] for step in steps) <= MOST_SECONDS
    assert len(list((tmp_path / "results").iterdir())) <= MOST_FILES


def test_all_runs_every_stage(programs: Path, tmp_path: Path) -> None:
    status, steps = run_script(programs, tmp_path / "results", "all")
    assert status == 0
    expected = [step for steps in STAGES.values() for step in steps if step != "build"]
    assert [step["step"] for step in steps] == ["build", *expected]


def test_a_step_that_fails_does_not_stop_the_others(programs: Path, tmp_path: Path) -> None:
    status, steps = run_script(programs, tmp_path / "results", "tests", "roipool verify")
    assert status == 1
    assert {step["step"]: step["status"] for step in steps} == {"build": 0, "verify": 3, "tests": 0}


def test_an_unknown_stage(programs: Path, tmp_path: Path) -> None:
    status, error = run_script(programs, tmp_path / "results", "nothing")
    assert status == 2
    assert error.startswith("gpu.sh: error: the stage must be tests, bench, sanitize, everything")
