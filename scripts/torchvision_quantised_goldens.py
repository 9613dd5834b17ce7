"""Writes the goldens of torchvision's quantised roi_align; run it where torchvision is.

python scripts/torchvision_quantised_goldens.py tests/data/goldens
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import golden_files
import numpy as np
import torch
import torchvision

CASES = 30
SCALES = (1.0, 0.5, 0.25)
STEP_OF_BOXES = 0.25  # of their codes, which are released torchvision's only form of boxes


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """Return one call but for the codes: boxes over the edge, and outside."""
    scale, channels = float(rng.choice(SCALES)), int(rng.integers(1, 4))
    height, width = rng.integers(3, 16, 2)
    corners = np.sort(rng.uniform(0, 1.2 * max(height, width), (6, 2, 2)), axis=1) / scale
    return {
        "numbers": rng.normal(0, 3, (1, channels, height, width)).astype(np.float32),
        "rois": np.column_stack([np.zeros(6), corners.reshape(6, 4)]).astype(np.float32),
        "input_scale": np.array(np.float32(rng.uniform(0.02, 0.1))),
        "input_zero_point": rng.integers(0, 100),
        "spatial_scale": np.array(scale),
        "pooled_height": rng.integers(1, 6),
        "pooled_width": rng.integers(1, 6),
        "sampling_ratio": rng.integers(-1, 4),
        "aligned": rng.integers(0, 2),
    }


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs and answers."""
    for number in range(CASES):
        call = {name: np.asarray(value) for name, value in drawn(rng).items()}
        kind = (torch.quint8, torch.qint8)[number % 2]
        step, zero = call["input_scale"].item(), call["input_zero_point"].item()
        maps = torch.quantize_per_tensor(torch.tensor(call.pop("numbers")), step, zero, kind)
        boxes = torch.quantize_per_tensor(torch.tensor(call["rois"]), STEP_OF_BOXES, 0, kind)
        size = call["pooled_height"].item(), call["pooled_width"].item()
        options = (call[name].item() for name in ("spatial_scale", "sampling_ratio"))
        pooled = torchvision.ops.roi_align(
            maps, boxes, size, *options, aligned=bool(call["aligned"])
        )
        yield {
            **call,
            "input": maps.int_repr().numpy(),
            "rois": boxes.dequantize().numpy(),
            "pooled": pooled.int_repr().numpy(),
        }


def main() -> None:
    """Write the goldens."""
    warnings.simplefilter("ignore")  # PyTorch deprecates quantised tensors
    folder = golden_files.folder_of_arguments(__doc__)
    golden_files.write(folder, "torchvision_quantised", cases(np.random.default_rng(28)))
    print(f"torchvision {torchvision.__version__}, CPU")


if __name__ == "__main__":
    main()
