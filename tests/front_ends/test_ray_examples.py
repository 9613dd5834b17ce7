"""The examples for this library run, and find what they expect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("ray_*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    """A separate process, since Ray's workers import the modules of their parent."""
    environment = {**os.environ, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    run = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=environment, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "boxes, at most" in run.stdout
