"""The examples for installed libraries run, and find what they expect."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
LIBRARIES = [name for name in ("jax", "mlx", "paddle", "tensorflow") if find_spec(name)]
EXAMPLES = sorted(path for name in LIBRARIES for path in FOLDER.glob(f"{name}_*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
