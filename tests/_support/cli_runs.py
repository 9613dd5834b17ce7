"""What the command-line tests share: running the program and looking at what it left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roipool.cli import main

FAST = ["--systems", "roipool.roi_pool,torchvision.roi_pool", "--output-size", "2"]
SPY = ["--systems", "spy"]


def names_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def save_map(path: str = "map.npy", shape: tuple[int, ...] = (2, 10, 12)) -> str:
    np.save(path, np.arange(np.prod(shape), dtype=np.float64).reshape(shape))
    return path


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the comparison, expect a complaint, and return it."""
    return complains(capsys, "compare", *FAST, *arguments)


def complains(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run, expect one line of complaint and no new file, and return the line."""
    before = names_here()
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("roipool: error: ")
    assert names_here() == before
    return err


def strict_json(path: str) -> dict[str, Any]:
    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is not JSON")

    content: dict[str, Any] = json.loads(
        Path(path).read_text(encoding="utf-8"), parse_constant=refuse
    )
    return content
