"""Crops of one size from pictures of bytes, as a second network wants them: faces, signs, cells.

    python examples/picture_crops.py

Pictures come as uint8, height by width by colour, and are read as they are, without a copy. Boxes
are pooled from all pictures in one call, to float32.
"""

from __future__ import annotations

import numpy as np

import roipool

CROP = 32


def pictures() -> np.ndarray:
    """Return two pictures (2, 240, 320, 3) of bytes: a gradient, and a grid of one-pixel lines."""
    rows, columns = np.mgrid[0:240, 0:320]
    gradient = np.stack([columns * 255 // 319, rows * 255 // 239, 0 * rows], axis=2)
    lines = np.where((columns % 4 == 0)[:, :, None], 255, 0) * np.ones(3, int)
    return np.stack([gradient, lines]).astype(np.uint8)


def to_bytes(crops: np.ndarray) -> np.ndarray:
    """Return crops as bytes: rounded, and held between 0 and 255."""
    return np.clip(np.rint(crops), 0, 255).astype(np.uint8)


def main() -> None:
    """Crop the same boxes in two ways."""
    # layout="NHWC" is how pictures lie in memory: nothing is transposed.
    images = pictures()
    boxes = np.array([[10, 20, 138, 148], [10, 20, 138, 148], [-20, -20, 44, 44]], np.float32)
    image_of_box = np.array([0, 1, 0])

    # Each pixel of a crop is the mean of the part of the picture that it covers. A box of 128
    # pixels is made 4 times smaller: 4 x 4 pixels each, and sampling_ratio=4 reads them all.
    means = roipool.roi_align(
        images, boxes, CROP, sampling_ratio=4, batch_indices=image_of_box, layout="NHWC"
    )
    print("crops:", to_bytes(means).shape, to_bytes(means).dtype)

    # crop_and_resize reads one point per pixel of the crop, and sees some lines and not others.
    # Its boxes are y1, x1, y2, x2, as fractions of the way from the first pixel to the last.
    last = np.float32([images.shape[1] - 1, images.shape[2] - 1] * 2)
    points = roipool.crop_and_resize(
        images, boxes[:, [1, 0, 3, 2]] / last, image_of_box, CROP, layout="NHWC"
    )
    print("one line in four pixels, on average", images[1].mean())
    for name, crops in (("means", means), ("points", points)):
        line = to_bytes(crops)[1, 0, :, 0]
        print(f"{name:7} from {line.min()} to {line.max()}")

    # The third box begins outside the picture: a pixel of the crop that lies there is black.
    print("outside:", to_bytes(means)[2, 0, 0], "inside:", to_bytes(means)[2, -1, -1])


if __name__ == "__main__":
    main()
