"""Time crops of a photograph beside OpenCV, Pillow and torchvision, which resize box after box.

    pip install opencv-python-headless pillow torch torchvision
    python benchmarks/pictures.py [--threads N] [--rounds N] [--crop PIXELS] [--json FILE]

The photograph has 12 megapixels of uint8, rows by columns by colour. Libraries crop it in turns,
and the median time of the rounds counts; of a library that is not installed there is none. Before,
crops are compared with roipool's: away from their border, since OpenCV and torchvision do not look
at the pixels beside a box. Pillow has no crops without antialiasing, and OpenCV's INTER_AREA is
another filter, which is not compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness.machine import facts
from numpy.typing import NDArray

import roipool

HEIGHT, WIDTH, BOXES = 3000, 4000, 100
BORDER = 2  # pixels of a crop
MOST_LEVELS = 1.5  # that crops may differ by: others round twice

Array = NDArray[Any]
Crop = Callable[[], Array]


class Workload(NamedTuple):
    """Crops of one photograph.

    Attributes
    ----------
    name : str
        What is done.
    sides : tuple of int
        The shortest and the longest side of a box, in parts of the side of a crop.
    antialias : bool
        Whether crops read all pixels of their boxes.
    """

    name: str
    sides: tuple[float, float]
    antialias: bool = False


WORKLOADS = (
    Workload("larger", (0.25, 0.95)),
    Workload("smaller", (1.25, 8)),
    Workload("smaller, antialias", (1.25, 8), antialias=True),
)


class Task(NamedTuple):
    """A workload's arrays; boxes are left, top, right and bottom, in whole pixels."""

    photo: Array
    boxes: NDArray[np.int64]
    crop: int
    antialias: bool


def task_of(workload: Workload, crop: int) -> Task:
    """Return the arrays of a workload, the same every time."""
    rng = np.random.default_rng(0)
    smooth = rng.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3)).repeat(8, 0).repeat(8, 1)
    photo = (smooth * 0.75 + rng.integers(0, 64, smooth.shape)).astype(np.uint8)
    sides = np.exp(rng.uniform(*np.log(np.multiply(workload.sides, crop)), (BOXES, 2))).astype(int)
    corners = (rng.uniform(0, 1, (BOXES, 2)) * (np.array([WIDTH, HEIGHT]) - sides)).astype(int)
    return Task(photo, np.hstack([corners, corners + sides]), crop, workload.antialias)


# ---- Libraries: each returns its version and a function that crops


def by_roipool(task: Task, threads: int, dtype: str = "uint8") -> tuple[str, Crop]:
    """Crop in one call."""
    roipool.set_num_threads(threads)
    half = (task.boxes[:, 2:] - task.boxes[:, :2]) / task.crop / 2
    ends = np.hstack([task.boxes[:, :2] + half, task.boxes[:, 2:] - half]) - 0.5
    fractions = ends[:, [1, 0, 3, 2]] / np.array([HEIGHT - 1, WIDTH - 1] * 2)
    images, size = np.zeros(BOXES, np.int64), (task.crop, task.crop)
    out = np.empty((BOXES, *size, 3), dtype)
    options: dict[str, Any] = {"antialias": task.antialias, "layout": "NHWC", "dtype": dtype}

    def crop() -> Array:
        return roipool.crop_and_resize(
            task.photo[None], fractions, images, size, **options, out=out
        )

    return roipool.__version__, crop


def by_roipool_float32(task: Task, threads: int) -> tuple[str, Crop]:
    """Crop in one call, without rounding."""
    return by_roipool(task, threads, "float32")


def by_roipool_from_float32(task: Task, threads: int) -> tuple[str, Crop]:
    """Crop a picture that was converted before, in one call."""
    return by_roipool(task._replace(photo=task.photo.astype(np.float32)), threads, "float32")


def by_opencv(task: Task, threads: int) -> tuple[str, Crop]:
    """Resize one box after the other."""
    import cv2

    cv2.setNumThreads(threads)
    out = np.empty((BOXES, task.crop, task.crop, 3), np.uint8)
    how = cv2.INTER_AREA if task.antialias else cv2.INTER_LINEAR

    def crop() -> Array:
        for (x1, y1, x2, y2), to in zip(task.boxes, out, strict=True):
            cv2.resize(task.photo[y1:y2, x1:x2], (task.crop, task.crop), to, interpolation=how)
        return out

    return cv2.__version__, crop


def by_pillow(task: Task, threads: int) -> tuple[str, Crop]:
    """Resize one box after the other; Pillow has one thread."""
    import PIL
    from PIL import Image

    picture, how = Image.fromarray(task.photo), Image.Resampling.BILINEAR
    out = np.empty((BOXES, task.crop, task.crop, 3), np.uint8)

    def crop() -> Array:
        for box, to in zip(task.boxes.tolist(), out, strict=True):
            to[...] = picture.resize((task.crop, task.crop), how, box=tuple(box))
        return out

    return PIL.__version__, crop


def by_torchvision(task: Task, threads: int) -> tuple[str, Crop]:
    """Crop and resize one box after the other, as tensors."""
    import torch
    import torchvision
    from torchvision.transforms.v2 import functional

    torch.set_num_threads(threads)
    picture = torch.from_numpy(task.photo).permute(2, 0, 1)
    out = np.empty((BOXES, task.crop, task.crop, 3), np.uint8)
    to = torch.from_numpy(out).permute(0, 3, 1, 2)
    size = [task.crop, task.crop]

    def crop() -> Array:
        for number, (x1, y1, x2, y2) in enumerate(task.boxes.tolist()):
            to[number] = functional.resized_crop(
                picture, y1, x1, y2 - y1, x2 - x1, size, antialias=task.antialias
            )
        return out

    return torchvision.__version__, crop


LIBRARIES: dict[str, Callable[[Task, int], tuple[str, Crop]]] = {
    "roipool": by_roipool,
    "roipool, float32 crops": by_roipool_float32,
    "roipool, float32 picture": by_roipool_from_float32,
    "OpenCV": by_opencv,
    "Pillow": by_pillow,
    "torchvision": by_torchvision,
}


# ---- Measurement


class Row(NamedTuple):
    """A library's crops, and their seconds."""

    library: str
    version: str
    levels: float | None  # the largest difference from roipool's crops
    seconds: list[float]

    @property
    def median(self) -> float:
        """Median seconds of a call."""
        return statistics.median(self.seconds)


def is_comparable(name: str, task: Task) -> bool:
    """Return whether a library crops by the same definition."""
    return not (name == "OpenCV" and task.antialias)


def measure(task: Task, threads: int, rounds: int) -> list[Row]:
    """Return a row for each library that is installed and has such crops."""
    rows, crops = [], []
    expected = by_roipool_float32(task, threads)[1]().copy()
    for name, open_library in LIBRARIES.items():
        if name == "Pillow" and not task.antialias:
            continue
        try:
            version, crop = open_library(task, threads)
        except ModuleNotFoundError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        inner = slice(BORDER, -BORDER)
        difference = np.abs(crop()[:, inner, inner] - expected[:, inner, inner])
        levels = float(difference.max()) if is_comparable(name, task) else None
        if levels is not None and levels > MOST_LEVELS:
            raise AssertionError(f"{name}'s crops differ by {levels} levels")
        rows.append(Row(name, version, levels, []))
        crops.append(crop)
    for _ in range(rounds):
        for row, crop in zip(rows, crops, strict=True):
            start = time.perf_counter()
            crop()
            row.seconds.append(time.perf_counter() - start)
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--crop", type=int, default=64, help="side of a crop, in pixels")
    parser.add_argument("--json", type=Path, help="also write the seconds of each round")
    arguments = parser.parse_args()
    found = {}
    print("| crops | library | version | median | ratio | levels |")
    print("| --- | --- | --- | --- | --- | --- |")
    for workload in WORKLOADS:
        task = task_of(workload, arguments.crop)
        rows = measure(task, arguments.threads, arguments.rounds)
        found[workload.name] = [row._asdict() for row in rows]
        for row in rows:
            levels = "" if row.levels is None else f"{row.levels:.2f}"
            print(
                f"| {workload.name} | {row.library} | {row.version} | {row.median * 1e3:.2f} ms "
                f"| {row.median / rows[0].median:.2f}x | {levels} |",
                flush=True,
            )
    if arguments.json is not None:
        options = {"threads": arguments.threads, "crop": arguments.crop}
        report = {"machine": facts(), **options, "workloads": found}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
