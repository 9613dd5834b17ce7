"""What each operation makes of one box of a picture, and what examples make, as pictures."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool import compat

PICTURE = Path(roipool.__file__).parent / "tools" / "compare" / "data" / "coffee.jpg"
CUP = (72.0, 7.0, 174.0, 120.0)  # x1, y1, x2, y2 in pixels
EXAMPLES = Path(__file__).parents[2] / "examples"
SIDE = 216  # pixels of a picture on the page

# By the name of the picture. `x` is the picture (1, 3, H, W) from 0 to 255; `cup` a row of its
# image and its corners; `turned` the same box about its middle, by 0.5 radians; `fractions` for
# crops.
CALLS = {
    "bilinear crop": "roipool.crop_and_resize(x, fractions, [0], 24)",
    "antialiased crop": "roipool.crop_and_resize(x, fractions, [0], 24, antialias=True)",
    "nearest crop": "roipool.crop_and_resize(x, fractions, [0], 24, method='nearest')",
    "ROI align": "roipool.roi_align(x, cup, 24)",
    "one sample per bin": "roipool.roi_align(x, cup, 24, sampling_ratio=1)",
    "ROI align, maximum": "roipool.roi_align(x, cup, 24, mode='max')",
    "precise mean": "roipool.precise_roi_pool(x, cup, 24)",
    "turned box": "roipool.roi_align_rotated(x, turned, 24)",
    "ROI pooling": "roipool.roi_pool(x, cup, 24)",
    "mean of whole cells": "roipool.roi_average_pool(x, cup, 24)",
    "Caffe's ROI align": "compat.caffe.roi_align(x, cup, 24, 24, 1.0)[0]",
    "7 bins": "roipool.roi_align(x, cup, 7)",
    "wide bins": "roipool.roi_align(x, cup, (24, 6))",
}


def file_of(name: str) -> str:
    """Return the name of a picture's file."""
    return "gallery-" + "".join(c if c.isalnum() else "-" for c in name.lower()) + ".png"


def write(folder: Path) -> None:
    """Write the picture with its box, and what every call makes of it."""
    from PIL import Image, ImageDraw  # only the site needs it

    picture = Image.open(PICTURE).convert("RGB")
    pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)[np.newaxis]
    for name, call in CALLS.items():
        _as_image(answer(call, pixels)).save(folder / file_of(name))
    drawn = picture.resize((picture.width * 2, picture.height * 2))
    corners = [2 * each for each in CUP]
    ImageDraw.Draw(drawn).rectangle(corners, outline="#ffdd44", width=3)
    drawn.save(folder / file_of("picture"))
    for name, of_example in EXAMPLE_PICTURES.items():
        Image.fromarray(of_example(_example(name))).save(folder / file_of(name))


def _example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def _signs(example: dict[str, Any]) -> NDArray[np.uint8]:
    """Return the photograph, and some signs that are cut out of it."""
    photo, corners = example["photograph"](), example["CORNERS"]
    boxes = np.hstack([corners, corners + example["SIDES"][:, None]]).astype(np.float64)
    drawn: NDArray[np.uint8] = example["picture"](photo, example["by_roipool"](photo, boxes))
    return drawn


def _nodule(example: dict[str, Any]) -> NDArray[np.uint8]:
    """Return a slice of the scan, and a box of it before and after it moved."""
    volume, middles, labels = example["scan"](np.random.default_rng(0))
    beside = example["boxes_about"](middles[labels][3:4] + 3)
    moved = example["centred"](volume, beside)
    drawn: NDArray[np.uint8] = example["picture"](volume, beside[0], moved[0])
    return drawn


def _tubes(example: dict[str, Any]) -> NDArray[np.uint8]:
    """Return a tube of each action, moment by moment."""
    rng = np.random.default_rng(0)
    actions = [*example["ACTIONS"]]
    rois = example["tubes"](rng)[: len(actions)]
    pooled = roipool.roi_align_3d(
        example["film"](rois, actions, rng), rois, example["BINS"], example["SCALE"]
    )
    drawn: NDArray[np.uint8] = example["picture"](pooled)
    return drawn


# By the name of the example.
EXAMPLE_PICTURES = {"photo_batch": _signs, "lung_nodules": _nodule, "video_tubes": _tubes}


def answer(call: str, pixels: NDArray[Any]) -> NDArray[Any]:
    """Return what a call gives, for a picture (1, 3, H, W)."""
    x1, y1, x2, y2 = CUP
    last = np.array([pixels.shape[2] - 1, pixels.shape[3] - 1] * 2, np.float32)
    middle = [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
    names = {
        "roipool": roipool,
        "compat": compat,
        "x": pixels,
        "cup": np.array([[0, *CUP]], np.float32),
        "turned": np.array([[0, *middle, 0.5]], np.float32),
        "fractions": np.array([[y1, x1, y2, x2]], np.float32) / last,
    }
    pooled: NDArray[Any] = eval(call, names)  # the text that the page shows
    return pooled[0]


def _as_image(pooled: NDArray[Any]) -> Any:
    from PIL import Image

    shown = np.clip(np.rint(pooled), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return Image.fromarray(shown).resize((SIDE, SIDE), Image.Resampling.NEAREST)


def markdown() -> str:
    """Return the pictures side by side, each above its call."""
    blocks = [
        f"::::{{container}} picture\n![{name}](_generated/{file_of(name)})\n\n"
        f"**{name}**: `{call}`\n::::\n"
        for name, call in CALLS.items()
    ]
    return "\n".join([":::::{container} pictures gallery", *blocks, ":::::"])
