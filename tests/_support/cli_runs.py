"""Runs the command line in tests, and checks its output and files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roipool.cli import main
from roipool.tools.compare.problem import Problem

FAST = ["--systems", "roipool.roi_pool,torchvision.roi_pool", "--output-size", "2"]


def names_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def save_map(path: str = "map.npy", shape: tuple[int, ...] = (2, 10, 12)) -> str:
    np.save(path, np.arange(np.prod(shape), dtype=np.float64).reshape(shape))
    return path


def given_to_a_system(*arguments: str) -> Problem:
    """Run `roipool compare` with a system that returns ones, and return its input."""
    calls = []

    def spy(problem: Problem, part: str) -> Any:
        calls.append(problem)
        return np.ones(problem.pooled_shape, np.float32)

    assert main(["compare", *arguments], systems={"spy": spy}) == 0
    return calls[-1]


def fails(capsys: pytest.CaptureFixture[str], *arguments: str, **tables: Any) -> str:
    """Run `roipool compare`, expect an error message, and return it."""
    return complains(capsys, "compare", *FAST, *arguments, **tables)


def complains(capsys: pytest.CaptureFixture[str], *arguments: str, **tables: Any) -> str:
    """Run the program, expect an error message in one line and no new file; return the line."""
    before = names_here()
    assert main(list(arguments), **tables) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("roipool: error: ")
    assert names_here() == before
    return err


def run_program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program in a separate process, by default with captured output."""
    command = [sys.executable, "-P", "-m", "roipool", *arguments]  # like the installed program
    caught = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "check": False}
    return subprocess.run(command, **{**caught, **options})


def one_line(run: subprocess.CompletedProcess[str]) -> str:
    """Expect an error message in one line and return it."""
    assert run.returncode == 2, run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("roipool: error: ")
    return run.stderr


def strict_json(path: str) -> dict[str, Any]:
    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is not JSON")

    content: dict[str, Any] = json.loads(
        Path(path).read_text(encoding="utf-8"), parse_constant=refuse
    )
    return content
