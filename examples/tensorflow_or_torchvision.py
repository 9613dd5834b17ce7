"""Why TensorFlow and torchvision pool a box differently, and how to get equal numbers.

    python examples/tensorflow_or_torchvision.py

The map is a ramp: each cell holds the x of its own centre, in pixels of the picture. A right answer
is then known without a second implementation: the mean of a bin is the middle of the bin.
"""

from __future__ import annotations

import numpy as np

from roipool.compat import tensorflow, torchvision

STRIDE, CELLS, BINS = 16, 20, 4
BOX = np.array([100.0, 100.0, 228.0, 228.0])  # x1, y1, x2, y2 in pixels


def ramp() -> np.ndarray:
    """Return the map; cell 0 covers the pixels 0 to 16, its centre lies at 8."""
    centres = (np.arange(CELLS, dtype=np.float32) + 0.5) * STRIDE
    return np.broadcast_to(centres, (1, 1, CELLS, CELLS)).copy()


def cropped(features: np.ndarray, x1: float, y1: float, x2: float, y2: float) -> np.ndarray:
    """Return the crop of a box in map cells whose cell 0 is at 0, by TensorFlow's operation."""
    last = CELLS - 1  # fractions are of the way from the first cell's centre to the last one's
    boxes = np.array([[y1, x1, y2, x2]], np.float32) / last
    image = features.transpose(0, 2, 3, 1)  # NHWC
    return tensorflow.crop_and_resize(image, boxes, [0], (BINS, BINS))[0, :, :, 0]


def main() -> None:
    """Print what each way gives for the columns of bins, and how far it is from their middles."""
    features = ramp()
    rois = np.array([[0, *BOX]])
    bin_length = (BOX[2] - BOX[0]) / BINS
    middles = BOX[0] + (np.arange(BINS) + 0.5) * bin_length
    print(f"{'middles of the bins':40}", middles)

    def report(name: str, pooled: np.ndarray) -> None:
        columns = np.asarray(pooled).reshape(BINS, BINS)[0].round(2)
        print(f"{name:40} {columns}  off by {np.abs(columns - middles).max():g} pixels")

    # torchvision's default takes a coordinate of 0 for the centre of cell 0, not for its edge.
    report("torchvision", torchvision.roi_align(features, rois, BINS, 1 / STRIDE, 2))
    aligned = torchvision.roi_align(features, rois, BINS, 1 / STRIDE, 1, aligned=True)
    report("torchvision, aligned=True", aligned)

    # TensorFlow's boxes are fractions of the way between the outermost cells' centres. Pixels over
    # the picture's size are not, and the outermost samples lie on the corners of the box.
    naive = BOX / (STRIDE * CELLS) * (CELLS - 1)
    report("TensorFlow, box / size of the picture", cropped(features, *naive))

    # One sample at the middle of each bin: move the corners inwards by half a bin, and all by half
    # a cell. Then it is torchvision's aligned average of one sample per bin.
    inwards = np.array([1, 1, -1, -1]) * bin_length / 2
    moved = cropped(features, *((BOX + inwards) / STRIDE - 0.5))
    report("TensorFlow, corners moved to the middles", moved)
    print("TensorFlow and torchvision agree:", np.allclose(moved, aligned[0, 0], atol=1e-3))

    # What no box can mend: a sample beyond the last cell's centre is 0 in TensorFlow, and the last
    # cell's value in torchvision; and there are no averages over more than one sample.


if __name__ == "__main__":
    main()
