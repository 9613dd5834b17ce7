"""Checks each framework's pooling with two questions whose answers are known.

    python examples/where_is_the_box.py

1. A map of ones is pooled: every value should be 1.
2. Each cell of a map holds the x of its own centre, in pixels of the picture. The average over a
   box should be the x of the box's centre. (A maximum has no such answer.)

The map has one cell for 16 x 16 pixels, as in many detectors. Options are the defaults.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import roipool
from roipool import compat

STRIDE, ROWS, COLUMNS = 16, 30, 40
BOX = np.array([96.0, 96.0, 262.0, 262.0], np.float32)  # x1, y1, x2, y2 in pixels
ROIS = np.array([[0, *BOX]], np.float32)
SIZE = np.array([COLUMNS, ROWS, COLUMNS, ROWS], np.float32) * STRIDE  # of the picture

Pool = Callable[[np.ndarray, int], np.ndarray]


def crop(x: np.ndarray, bins: int) -> np.ndarray:
    """Crop by TensorFlow, with the box as fractions of the picture."""
    fractions = (BOX / SIZE)[[1, 0, 3, 2]][None]
    return compat.tensorflow.crop_and_resize(x.transpose(0, 2, 3, 1), fractions, [0], (bins, bins))


AVERAGES: dict[str, Pool] = {
    "torchvision.roi_align": lambda x, n: compat.torchvision.roi_align(x, ROIS, n, 1 / 16),
    "detectron2.ROIAlign": lambda x, n: compat.detectron2.ROIAlign(n, 1 / 16, 0)(x, ROIS),
    "mmcv.roi_align": lambda x, n: compat.mmcv.roi_align(x, ROIS, n, 1 / 16),
    "tensorflow.crop_and_resize": crop,
    "chainer.roi_average_pooling_2d": lambda x, n: compat.chainer.roi_average_pooling_2d(
        x, ROIS[:, [2, 1, 4, 3]], [0], n, 1 / 16
    ),
    "roipool.roi_align": lambda x, n: roipool.roi_align(x, ROIS, n, 1 / 16),
}
MAXIMA: dict[str, Pool] = {
    "caffe.roi_align": lambda x, n: compat.caffe.roi_align(x, ROIS, n, n, 1 / 16)[0],
    "onnx.RoiAlign, mode max": lambda x, n: compat.onnx.RoiAlign(
        x, ROIS[:, 1:], [0], mode="max", output_height=n, output_width=n, spatial_scale=1 / 16
    ),
}


def main() -> None:
    """Print the table."""
    ones = np.ones((1, 1, ROWS, COLUMNS), np.float32)
    ramp = ones * (np.arange(COLUMNS, dtype=np.float32) + 0.5) * STRIDE
    middle = (BOX[0] + BOX[2]) / 2
    print(f"{'pooling':32} {'ones become':>12}   box centre is off by")
    for name, pool in {**AVERAGES, **MAXIMA}.items():
        values = np.unique(pool(ones, 7).round(2))
        span = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"
        off = f"{round(pool(ramp, 1).item() - middle, 1):g} pixels" if name in AVERAGES else ""
        print(f"{name:32} {span:>12}   {off}".rstrip())


if __name__ == "__main__":
    main()
