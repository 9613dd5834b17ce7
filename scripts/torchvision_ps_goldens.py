"""Writes the goldens of torchvision's ps_roi_pool and ps_roi_align; run it where torchvision is.

python scripts/torchvision_ps_goldens.py tests/data/goldens
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import golden_files
import numpy as np
import torch
import torchvision

CASES = 24
SCALES = (1.0, 0.5, 0.25, 1 / 16)


def drawn(rng: np.random.Generator, function: str) -> dict[str, Any]:
    """Return one call: boxes over the edge, outside, on half cells; reversed ones for pooling."""
    size = rng.integers(1, 4, 2)
    scale, (images, channels) = float(rng.choice(SCALES)), rng.integers(1, 3, 2)
    height, width = rng.integers(3, 14, 2)
    shape = int(images), int(channels * size.prod()), int(height), int(width)
    count = int(rng.integers(1, 7))
    corners = np.round(rng.uniform(-3, max(height, width) + 3, (count, 4)) * 2) / 2 / scale
    if function == "ps_roi_align":  # a side that is not above 0 has no adaptive samples
        first, last = corners[:, :2], corners[:, 2:]
        corners = np.hstack([np.minimum(first, last), np.maximum(first, last) + 0.5 / scale])
    rois = np.column_stack([rng.integers(0, images, count), corners]).astype(np.float32)
    return {
        "input": rng.standard_normal(shape, np.float32),
        "boxes": rois,
        "output_size": size,
        "spatial_scale": np.array(scale),
        "grad": rng.standard_normal((count, int(channels), *size), np.float32),
    }


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs and answers."""
    for case in range(CASES):
        function = ("ps_roi_pool", "ps_roi_align")[case % 2]
        call = drawn(rng, function)
        if function == "ps_roi_align":
            call["sampling_ratio"] = np.array(rng.integers(0, 4))
        options = [call["spatial_scale"].item()]
        options += [call["sampling_ratio"].item()] if "sampling_ratio" in call else []
        maps = torch.tensor(call["input"], requires_grad=True)
        size = call["output_size"].tolist()
        operator = getattr(torchvision.ops, function)
        pooled = operator(maps, torch.tensor(call["boxes"]), size, *options)
        pooled.backward(torch.tensor(call["grad"]))
        yield {**call, "pooled": pooled.detach().numpy(), "gradient": maps.grad.numpy()}


def main() -> None:
    """Write the goldens."""
    folder = golden_files.folder_of_arguments(__doc__)
    golden_files.write(folder, "torchvision_ps", cases(np.random.default_rng(27)))
    print(f"torchvision {torchvision.__version__}, CPU")


if __name__ == "__main__":
    main()
