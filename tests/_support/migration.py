"""The tables of docs/migration.md, and the arguments of their calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import roipool
from roipool import compat

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PAGE = (SOURCES / "docs" / "migration.md").read_text()
# The calls of a framework, of roipool.compat, and of roipool.
ROWS = re.findall(r"^\| (.*) \| `(compat\..*)` \| (.*) \|$", PAGE, re.MULTILINE)


def names() -> dict[str, Any]:
    """Return the variables of the calls, as NumPy arrays."""
    rng = np.random.default_rng(0)
    corner, side = rng.uniform(20, 120, (7, 2)), rng.uniform(10, 90, (7, 2))
    boxes = np.hstack([corner, corner + side]).astype(np.float32)
    images = np.int32([0, 0, 0, 1, 1, 1, 1])
    x = rng.standard_normal((2, 6, 16, 16), dtype=np.float32)
    yxyx = boxes[:, [1, 0, 3, 2]]
    centre, angle = (boxes[:, :2] + boxes[:, 2:]) / 2, rng.uniform(-4, 4, 7)
    turned = np.column_stack([images, centre, boxes[:, 2:] - boxes[:, :2], angle])
    degrees = np.column_stack([turned[:, :5], np.rad2deg(angle)])
    sizes = (64, 32, 16, 8)
    scan = rng.standard_normal((2, 3, 8, 16, 16), dtype=np.float32)
    depth = rng.uniform(2, 15, (7, 1)) + np.array([0, 12])
    tubes = np.column_stack([images, boxes[:, :2] / 4, depth[:, 0], boxes[:, 2:] / 4, depth[:, 1]])
    return {
        "x": x,
        "masks": rng.random((7, 1, 28, 28), dtype=np.float32),
        "pictures": rng.random((2, 256, 256)) > 0.5,
        "scores": rng.standard_normal((2, 2 * 49, 16, 16), dtype=np.float32),
        "x_nhwc": np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
        "boxes": boxes,
        "images": images,
        "counts": np.int32([3, 4]),
        "rois": np.column_stack([images, boxes]).astype(np.float32),
        "turned": turned.astype(np.float32),
        "turned_degrees": degrees.astype(np.float32),
        "yxyx": yxyx,
        "fractions": yxyx / 256,
        "scan": scan,
        "scan_hwd": np.ascontiguousarray(scan.transpose(0, 1, 3, 4, 2)),
        "tubes": tubes.astype(np.float32),
        "yxyxzz": tubes[:, [0, 2, 1, 5, 4, 3, 6]].astype(np.float32),
        "pyramid": [rng.standard_normal((2, 6, n, n), dtype=np.float32) for n in sizes],
    }


def code(cell: str) -> str | None:
    """Return the code of a cell, or None if it contains anything else."""
    match = re.fullmatch(r"`([^`]+)`", cell)
    return match[1] if match else None


def value(call: str) -> Any:
    """Return the result of a call of the second or third column."""
    return np.asarray(eval(call, {"roipool": roipool, "compat": compat}, names()))


def calls_of(library: str) -> list[tuple[str, str]]:
    """Return the calls of a framework, each with the corresponding call of roipool.compat."""
    found = [(code(row[0]) or "", row[1]) for row in ROWS]
    return [row for row in found if row[0].startswith(f"{library}.")]
