"""Writes tests/data/goldens/masks.npz: what released programs paste and encode.

    pip install pycocotools scikit-image torch torchvision
    python scripts/mask_goldens.py

Arrays of a case: `masks` (K, 1, M, M), `boxes` (K, 4), `size`, `padding`; `torchvision`, pasted by
its paste_masks_in_image, the gradient `gradient` of `grad`, `targets` (project_masks_on_boxes of
`pictures` for `numbers`, 7 by 7); detectron2's rule, in the whole picture as it has it on GPUs, by
torch's grid_sample: `values`, and `binary`; `counts`, the run lengths of these by pycocotools;
`matterport`, unmold_mask of Matterport's Mask R-CNN, which resizes with scikit-image, for `whole`,
boxes y1, x1, y2, x2 of whole pixels inside the picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pycocotools import mask as coco
from skimage.transform import resize
from torch import Tensor
from torch.nn.functional import grid_sample
from torchvision.models.detection import roi_heads

FILE = Path(__file__).parents[1] / "tests" / "data" / "goldens" / "masks.npz"
CASES = 40

Arrays = dict[str, Any]


def inputs(rng: np.random.Generator, number: int) -> Arrays:
    """Return masks and boxes that overlap the picture, some on whole pixels."""
    count, side, size = rng.integers(1, 5), rng.integers(1, 12), rng.integers(8, 40, 2)
    extent = np.array([size[1], size[0]])
    low = rng.uniform(-0.3, 0.8, (count, 2)) * extent
    high = np.maximum(low + rng.uniform(0.05, 1.2, (count, 2)) * extent, 1)
    boxes = np.concatenate([low, high], axis=1)
    top = rng.integers(0, size - 1, (count, 2))
    return {
        "masks": rng.random((count, 1, side, side)).astype(np.float32),
        "boxes": (boxes.round() if number % 3 == 0 else boxes).astype(np.float32),
        "size": size,
        "padding": rng.integers(0, 3),
        "pictures": rng.random((3, *size)) > 0.5,
        "numbers": rng.integers(0, 3, count),
        "whole": np.concatenate([top, top + 1 + rng.integers(0, size - top)], axis=1).clip(
            0, np.tile(size, 2)
        ),
    }


def by_grid_sample(masks: Tensor, boxes: Tensor, size: Any) -> Tensor:
    """Return the values of detectron2's rule in the whole picture."""
    rows, columns = (torch.arange(side) + 0.5 for side in size.tolist())
    x1, y1, x2, y2 = boxes[:, :, None].unbind(1)
    x = ((columns - x1) / (x2 - x1) * 2 - 1)[:, None].expand(-1, len(rows), -1)
    y = ((rows - y1) / (y2 - y1) * 2 - 1)[:, :, None].expand(-1, -1, len(columns))
    return grid_sample(masks, torch.stack([x, y], 3), align_corners=False)[:, 0]


def unmold_mask(mask: Any, box: Any, size: Any) -> Any:
    """Return what ``mrcnn.utils.unmold_mask`` does."""
    y1, x1, y2, x2 = box
    picture = np.zeros(size, bool)
    options = {"order": 1, "mode": "constant", "anti_aliasing": False}
    picture[y1:y2, x1:x2] = resize(mask, (y2 - y1, x2 - x1), **options) >= 0.5
    return picture


def answers(case: Arrays, rng: np.random.Generator) -> Arrays:
    """Return the results of all programs."""
    masks, boxes = (torch.from_numpy(case[name]) for name in ("masks", "boxes"))
    masks.requires_grad_()
    size = tuple(case["size"].tolist())
    pasted = roi_heads.paste_masks_in_image(masks, boxes, size, int(case["padding"]))
    gradient = rng.normal(size=pasted.shape).astype(np.float32)
    pasted.backward(torch.from_numpy(gradient))
    pictures = torch.from_numpy(case["pictures"].astype(np.uint8))
    targets = roi_heads.project_masks_on_boxes(
        pictures, boxes, torch.from_numpy(case["numbers"]), 7
    )
    values = by_grid_sample(masks.detach(), boxes, case["size"]).numpy()
    binary = values >= 0.5
    encoded = coco.encode(np.asfortranarray(binary.transpose(1, 2, 0).astype(np.uint8)))
    counts = [np.frombuffer(each["counts"], np.uint8) for each in encoded]
    unmolded = [
        unmold_mask(mask[0].astype(np.float64), box, size)
        for mask, box in zip(case["masks"], case["whole"], strict=True)
    ]
    return {
        "torchvision": pasted.detach().numpy(),
        "grad": gradient,
        "gradient": masks.grad.numpy(),
        "targets": targets.numpy(),
        "values": values,
        "binary": binary,
        "matterport": np.stack(unmolded),
        **{f"counts{number}": each for number, each in enumerate(counts)},
    }


def every_case() -> Iterator[tuple[int, Arrays]]:
    """Yield the inputs and results of each case."""
    rng = np.random.default_rng(45)
    for number in range(CASES):
        case = inputs(rng, number)
        yield number, {**case, **answers(case, rng)}


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {
        f"case{number}_{name}": array
        for number, case in every_case()
        for name, array in case.items()
    }
    np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
