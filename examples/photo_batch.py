"""A batch for a classifier from a photograph of 12 megapixels: traffic signs, each of another size.

    python examples/photo_batch.py [PICTURE]

The photograph is uint8, rows by columns by colour, as Pillow and OpenCV read it. roipool reads the
signs where they are, in one call; Pillow (``pip install pillow``), and torchvision where it is
installed, cut and resize them one by one, to compare. With a name, the program writes a picture of
the photograph and of some crops.
"""

from __future__ import annotations

import sys

import numpy as np
from PIL import Image, ImageDraw

import roipool

CROP = 64
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
SIDES = np.random.default_rng(1).integers(24, 320, 100)  # of signs, made larger and smaller
CORNERS = np.random.default_rng(2).integers(0, (3600, 2600), (100, 2))  # left and top
SIDES[:2], CORNERS[:2] = 40, [[0, 0], [3960, 2960]]  # in two corners of the photograph


def photograph() -> np.ndarray:
    """Return 3000 x 4000 pixels of grain, with a sign in each box."""
    grain = np.random.default_rng(0).integers(90, 140, (3000, 4000, 3), np.uint8)
    picture = Image.fromarray(grain)
    draw = ImageDraw.Draw(picture)
    for (left, top), side in zip(CORNERS.tolist(), SIDES.tolist(), strict=True):
        right, bottom = left + side, top + side
        draw.ellipse([left, top, right, bottom], (235, 235, 235), (190, 20, 30), side // 8)
        draw.rectangle(
            [left + side * 0.25, top + side * 0.45, right - side * 0.25, top + side * 0.55], 0
        )
    return np.array(picture)


def fractions(photo: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return y1, x1, y2, x2 of the centres of the first and last pixels of each crop.

    Boxes are x1, y1, x2, y2, from the edge of the first pixel to that of the last.
    """
    half = (boxes[:, 2:] - boxes[:, :2]) / CROP / 2
    ends = np.concatenate([boxes[:, :2] + half, boxes[:, 2:] - half], axis=1) - 0.5
    last = np.array(photo.shape[:2]) - 1.0
    return ends[:, [1, 0, 3, 2]] / np.tile(last, 2)


def by_roipool(photo: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Cut and resize all boxes; those made smaller are averaged."""
    images = np.zeros(len(boxes), int)
    found = fractions(photo, boxes)
    options = {"antialias": True, "border": "edge", "layout": "NHWC"}
    return roipool.crop_and_resize(photo[None], found, images, CROP, **options)


def by_pillow(photo: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Cut and resize one box after the other."""
    picture, how = Image.fromarray(photo), Image.Resampling.BILINEAR
    cut = [picture.resize((CROP, CROP), how, box=tuple(box)) for box in boxes]
    return np.stack([np.asarray(one) for one in cut])


def by_torchvision(photo: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Cut and resize one box after the other, as tensors."""
    import torch
    from torchvision.transforms.v2 import functional

    picture = torch.from_numpy(photo).permute(2, 0, 1)
    cut = [
        functional.resized_crop(picture, y1, x1, y2 - y1, x2 - x1, [CROP, CROP], antialias=True)
        for x1, y1, x2, y2 in boxes.astype(int).tolist()
    ]
    return torch.stack(cut).permute(0, 2, 3, 1).numpy()


def to_batch(crops: np.ndarray) -> np.ndarray:
    """Normalise crops as classifiers of ImageNet want them, (K, 3, rows, columns)."""
    return ((crops / np.float32(255) - MEAN) / DEVIATION).transpose(0, 3, 1, 2)


def picture(photo: np.ndarray, crops: np.ndarray) -> np.ndarray:
    """Return the whole photograph, itself a crop, beside five rows of five crops of its boxes."""
    whole, size = np.array([[0.0, 0, 1, 1]]), (360, 480)
    small = roipool.crop_and_resize(photo[None], whole, [0], size, antialias=True, layout="NHWC")
    framed = np.pad(crops[:25], [(0, 0), (0, 8), (8, 0), (0, 0)], constant_values=255)
    grid = framed.reshape(5, 5, *framed.shape[1:]).transpose(0, 2, 1, 3, 4)
    beside = np.hstack([small[0], grid.reshape(360, 360, 3)])
    return np.uint8(np.rint(beside))


def main() -> None:
    """Make the batch, and compare its crops with those of the others."""
    photo = photograph()
    boxes = np.hstack([CORNERS, CORNERS + SIDES[:, None]]).astype(np.float64)
    print("photograph:", photo.shape, photo.dtype, f"{photo.nbytes / 1e6:.0f} MB")
    crops = by_roipool(photo, boxes)
    batch = to_batch(crops)
    print("batch:", batch.shape, batch.dtype, f"{batch.nbytes / 1e6:.1f} MB")
    # torchvision does not look at the pixels beside the box.
    for name, resize, rim in (("Pillow", by_pillow, 0), ("torchvision", by_torchvision, 2)):
        try:
            other = resize(photo, boxes)
        except ModuleNotFoundError:
            print(f"{name} is not installed")
            continue
        apart = np.abs(crops - other)[:, rim : CROP - rim, rim : CROP - rim]  # both round twice
        print(f"{name}'s crops differ by at most {apart.max():.2f}, on average {apart.mean():.2f}")
    if len(sys.argv) > 1:
        Image.fromarray(picture(photo, crops)).save(sys.argv[1])


if __name__ == "__main__":
    main()
