"""Writes the goldens of torchvision's MultiScaleRoIAlign; run it where torchvision is installed.

python scripts/multiscale_goldens.py tests/data/goldens
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import golden_files
import numpy as np
import torch
import torchvision

CASES = 12
LEVELS = range(2, 6)


def boxes(rng: np.random.Generator, extent: int) -> Any:
    """Return boxes of all sizes, many of them exactly on a boundary between two levels."""
    count = int(rng.integers(0, 12))
    start = np.round(rng.uniform(-10, extent, (count, 2)))
    exact = rng.choice([14, 28, 56, 112, 224, 448], (count, 1)) * np.ones(2)
    sides = np.where(rng.random((count, 1)) < 0.5, exact, 2 ** rng.uniform(0, 10, (count, 2)))
    return np.hstack([start, start + sides]).astype(np.float32)


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs and answers."""
    for _ in range(CASES):
        height, width = (32 * int(size) for size in rng.integers(2, 9, 2))
        images, ratio = int(rng.integers(1, 3)), int(rng.integers(0, 3))
        names = [str(level) for level in LEVELS if rng.random() < 0.85] or ["3"]
        shapes = {level: (images, 2, height >> level, width >> level) for level in LEVELS}
        maps = {
            str(level): rng.integers(-64, 64, shape).astype(np.float32)
            for level, shape in shapes.items()
        }
        tables = [np.zeros((1, 4), np.float32), *(boxes(rng, width) for _ in range(images - 1))]
        tables[0] = np.vstack([tables[0] + [0, 0, 9, 9], boxes(rng, width)]).astype(np.float32)
        pooler = torchvision.ops.MultiScaleRoIAlign(names, (3, 2), ratio)
        tensors = {name: torch.tensor(one, requires_grad=True) for name, one in maps.items()}
        pooled = pooler(tensors, [torch.tensor(one) for one in tables], [(height, width)] * images)
        grad = rng.integers(-16, 16, pooled.shape).astype(np.float32)
        pooled.backward(torch.tensor(grad))
        yield {
            "picture": np.array([height, width]),
            "ratio": np.array(ratio),
            "names": np.array(names),
            "grad": grad,
            "pooled": pooled.detach().numpy(),
            **{f"boxes{i}": one for i, one in enumerate(tables)},
            **{f"map{name}": one for name, one in maps.items()},
            **{f"grad{name}": tensors[name].grad.numpy() for name in names},
        }


def main() -> None:
    """Write the goldens."""
    folder = golden_files.folder_of_arguments(__doc__)
    golden_files.write(folder, "torchvision_multiscale", cases(np.random.default_rng(21)))
    print(f"torchvision {torchvision.__version__}, CPU")


if __name__ == "__main__":
    main()
