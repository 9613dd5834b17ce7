"""Fixtures of the command-line tests: each runs in an empty folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roipool.cli.compare.systems import SYSTEMS


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Add a system that notes what it was given and answers with ones."""
    noted: dict[str, Any] = {}

    def spy(features: Any, rois: Any, options: Any) -> Any:
        noted.update(features=features, rois=rois, options=options)
        return np.ones((len(rois), features.shape[1], *options.output_size), np.float32)

    monkeypatch.setitem(SYSTEMS, "spy", spy)
    return noted
