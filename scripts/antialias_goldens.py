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


def sides(rng: np.random.Generator, size: int, bins: int, whole: bool) -> tuple[float, float]:
    """Return the ends of a box along an axis, which is at least as long as the crop."""
    start, end = np.sort(rng.uniform(0, size - bins, 2))
    if whole:
        start, end = np.floor(start), np.ceil(end)
    return float(np.float32(start)), float(np.float32(end + bins))


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs and answers."""
    for case in range(CASES):
        height, width = (int(size) for size in rng.integers(12, 60, 2))
        rows, columns = (int(size) for size in rng.integers(2, 8, 2))
        picture = rng.integers(0, 256, (height, width)).astype(np.uint8)
        y1, y2 = sides(rng, height, rows, whole=case % 2 == 0)
        x1, x2 = sides(rng, width, columns, whole=case % 2 == 0)
        found = {"picture": picture, "box": np.array([x1, y1, x2, y2])}
        how = {"resample": Image.Resampling.BILINEAR, "box": (x1, y1, x2, y2)}
        found["pillow"] = np.asarray(Image.fromarray(picture).resize((columns, rows), **how))
        exact = Image.fromarray(picture.astype(np.float32))
        found["pillow_float"] = np.asarray(exact.resize((columns, rows), **how))
        if case % 2 == 0:  # crops of whole pixels, and nothing beside them
            cut = torch.tensor(picture[int(y1) : int(y2), int(x1) : int(x2)])[None]
            for kind in ("double", "byte"):
                resized = functional.resize(getattr(cut, kind)(), [rows, columns], antialias=True)
                found[f"torchvision_{kind}"] = resized[0].numpy()
        yield found


def main() -> None:
    """Write the goldens."""
    folder = golden_files.folder_of_arguments(__doc__)
    golden_files.write(folder, "antialias", cases(np.random.default_rng(27)))
    print(f"Pillow {PIL.__version__}, torchvision {torchvision.__version__}, CPU")


if __name__ == "__main__":
    main()
