"""The way of a task to another process; it is a `roipool.cli.bench.libraries.Task` on this side."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["load", "save"]


def save(task: Any, folder: Path) -> None:
    """Write a task where another process can `load` it."""
    plain = task._replace(levels=[])._asdict()
    plain["scales"] = [level.scale for level in task.levels]
    (folder / "task.json").write_text(json.dumps(plain))
    for number, level in enumerate(task.levels):
        for name in ("features", "rois", "grad"):
            array = getattr(level, name)
            if array is not None:
                np.save(str(folder / f"{name}{number}.npy"), array)


def load(folder: Path) -> SimpleNamespace:
    """Read a task that `save` wrote, with the same attributes."""
    plain = json.loads((folder / "task.json").read_text())

    def array(name: str, number: int) -> Any:
        path = folder / f"{name}{number}.npy"
        return np.load(str(path)) if path.exists() else None

    plain["levels"] = [
        SimpleNamespace(
            features=array("features", n), rois=array("rois", n), grad=array("grad", n), scale=scale
        )
        for n, scale in enumerate(plain.pop("scales"))
    ]
    plain["output_size"] = tuple(plain["output_size"])
    return SimpleNamespace(**plain)
