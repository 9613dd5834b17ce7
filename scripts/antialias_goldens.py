"""Writes the goldens of antialiased crops; run it where Pillow and torchvision are installed.

python scripts/antialias_goldens.py tests/data/goldens
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import golden_files
import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import functional

CASES = 24
AT_BORDERS = 16


def sides(rng: np.random.Generator, size: int, bins: int, whole: bool) -> tuple[float, float]:
    """Return the ends of a box along an axis, which is at least as long as the crop."""
    start, end = np.sort(rng.uniform(0, size - bins, 2))
    if whole:
        start, end = np.floor(start), np.ceil(end)
    return float(np.float32(start)), float(np.float32(end + bins))


def side_at_border(rng: np.random.Generator, size: int, case: int) -> tuple[float, float]:
    """Return the ends of a side that starts or ends where the picture does, or both."""
    length = int(rng.integers(1, size))
    return ((0.0, length), (size - length, size), (0.0, size), (0.0, length))[case % 4]


def answers(picture: Any, box: tuple[float, ...], size: tuple[int, int]) -> dict[str, Any]:
    """Return a case: its inputs, and the answers for a crop of rows and columns."""
    found = {"picture": picture, "box": np.array(box, np.float64)}
    how = {"resample": Image.Resampling.BILINEAR, "box": box}
    found["pillow"] = np.asarray(Image.fromarray(picture).resize(size[::-1], **how))
    exact = Image.fromarray(picture.astype(np.float32))
    found["pillow_float"] = np.asarray(exact.resize(size[::-1], **how))
    if all(float(end).is_integer() for end in box):  # of whole pixels, and nothing beside them
        x1, y1, x2, y2 = map(int, box)
        cut = torch.tensor(picture[y1:y2, x1:x2])[None]
        for kind in ("double", "byte"):
            resized = functional.resize(getattr(cut, kind)(), [*size], antialias=True)
            found[f"torchvision_{kind}"] = resized[0].numpy()
    return found


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs and answers: of crops made smaller, and of boxes at the border."""
    for case in range(CASES):
        height, width = (int(size) for size in rng.integers(12, 60, 2))
        rows, columns = (int(size) for size in rng.integers(2, 8, 2))
        picture = rng.integers(0, 256, (height, width)).astype(np.uint8)
        y1, y2 = sides(rng, height, rows, whole=case % 2 == 0)
        x1, x2 = sides(rng, width, columns, whole=case % 2 == 0)
        yield answers(picture, (x1, y1, x2, y2), (rows, columns))
    for case in range(AT_BORDERS):  # larger along both axes, or one of them
        height, width = (int(size) for size in rng.integers(4, 30, 2))
        rows, columns = (int(size) for size in rng.integers(2, 40, 2))
        picture = rng.integers(0, 256, (height, width)).astype(np.uint8)
        y1, y2 = side_at_border(rng, height, case)
        x1, x2 = side_at_border(rng, width, case // 4 if case < 12 else case)
        yield answers(picture, (x1, y1, x2, y2), (rows, columns))


def main() -> None:
    """Write the goldens."""
    folder = golden_files.folder_of_arguments(__doc__)
    golden_files.write(folder, "antialias", cases(np.random.default_rng(27)))
    print(f"Pillow {PIL.__version__}, torchvision {torchvision.__version__}, CPU")


if __name__ == "__main__":
    main()
