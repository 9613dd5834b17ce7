"""A batch for a classifier from a photograph of 12 megapixels: traffic signs, each of another size.

    python examples/photo_batch.py

The photograph is uint8, rows by columns by colour, as Pillow and OpenCV read it. roipool reads the
signs where they are; Pillow (``pip install pillow``) cuts and resizes them one by one, to compare.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

import roipool

CROP = 64
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
SMALL = [(410, 260, 36), (1980, 1411, 50), (3300, 777, 44)]  # left, top, side: made larger
LARGE = [(700, 1900, 256), (2600, 300, 128), (1500, 2300, 192)]  # made 4, 2 and 3 times smaller


def photograph() -> np.ndarray:
    """Return 3000 x 4000 pixels of grain, with a sign in each box."""
    grain = np.random.default_rng(0).integers(90, 140, (3000, 4000, 3), np.uint8)
    picture = Image.fromarray(grain)
    draw = ImageDraw.Draw(picture)
    for left, top, side in (*SMALL, *LARGE):
        right, bottom = left + side, top + side
        draw.ellipse([left, top, right, bottom], (235, 235, 235), (190, 20, 30), side // 8)
        draw.rectangle(
            [left + side * 0.25, top + side * 0.45, right - side * 0.25, top + side * 0.55], 0
        )
    return np.array(picture)


def corners(signs: list[tuple[int, int, int]]) -> np.ndarray:
    """Return x1, y1, x2, y2 of each sign, from the edge of its first pixel to that of its last."""
    return np.array([[x, y, x + side, y + side] for x, y, side in signs], np.float64)


def enlarged(photo: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Interpolate between pixels, at the centres of the crop's pixels."""
    half = (boxes[:, 2:] - boxes[:, :2]) / CROP / 2
    ends = np.concatenate([boxes[:, :2] + half, boxes[:, 2:] - half], axis=1) - 0.5
    last = np.array(photo.shape[:2]) - 1.0
    fractions = ends[:, [1, 0, 3, 2]] / np.tile(last, 2)
    images = np.zeros(len(boxes), int)
    return roipool.crop_and_resize(photo[None], fractions, images, CROP, layout="NHWC")


def reduced(photo: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Return the mean of the pixels that each pixel of the crop covers."""
    ratio = round((box[2] - box[0]) / CROP)
    rois = np.array([[0, *box]])
    return roipool.roi_align(photo[None], rois, CROP, sampling_ratio=ratio, layout="NHWC")


def by_pillow(photo: np.ndarray, boxes: np.ndarray, how: Image.Resampling) -> np.ndarray:
    """Cut and resize one box after the other."""
    picture = Image.fromarray(photo)
    cut = [picture.resize((CROP, CROP), how, box=tuple(box)) for box in boxes]
    return np.stack([np.asarray(one) for one in cut])


def to_batch(crops: np.ndarray) -> np.ndarray:
    """Normalise crops as classifiers of ImageNet want them, (K, 3, rows, columns)."""
    return ((crops / np.float32(255) - MEAN) / DEVIATION).transpose(0, 3, 1, 2)


def main() -> None:
    """Make the batch, and compare its crops with Pillow's."""
    photo, small, large = photograph(), corners(SMALL), corners(LARGE)
    print("photograph:", photo.shape, photo.dtype, f"{photo.nbytes / 1e6:.0f} MB")

    larger = enlarged(photo, small)
    smaller = np.concatenate([reduced(photo, box) for box in large])
    batch = to_batch(np.concatenate([larger, smaller]))
    print("batch:", batch.shape, batch.dtype, f"{batch.nbytes / 1e6:.1f} MB")

    # Pillow rounds to bytes twice, and does not look at the pixels beside the box.
    inner = np.s_[:, 2:-2, 2:-2]
    bilinear = np.abs(larger - by_pillow(photo, small, Image.Resampling.BILINEAR))
    box = np.abs(smaller - by_pillow(photo, large, Image.Resampling.BOX))
    print(f"made larger:  at most {bilinear[inner].max():.2f} from Pillow's BILINEAR")
    print(f"made smaller: at most {box.max():.2f} from Pillow's BOX")


if __name__ == "__main__":
    main()
