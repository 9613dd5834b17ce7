"""Ports the pooling of py-faster-rcnn's head: Caffe's layer, its equal, then something better.

    python examples/faster_rcnn_head.py

py-faster-rcnn pools 7 x 7 bins from VGG-16's last map, which has one cell for 16 x 16 pixels:

    layer {
      name: "roi_pool5"
      type: "ROIPooling"
      bottom: "conv5_3"
      bottom: "rois"
      top: "pool5"
      roi_pooling_param { pooled_w: 7  pooled_h: 7  spatial_scale: 0.0625 }
    }
"""

from __future__ import annotations

import numpy as np

import roipool
from roipool.compat import caffe

STRIDE = 16


def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Return what the network gives the layer: a picture's map, and its proposals."""
    rng = np.random.default_rng(0)
    conv5_3 = rng.standard_normal((1, 512, 38, 63), dtype=np.float32)
    corner = rng.uniform(0, (600, 400), (100, 2))
    side = rng.uniform(16, 300, (100, 2))
    proposals = np.hstack([corner, np.minimum(corner + side, (999, 599))])
    # Caffe's blob of boxes: the number of the picture, then x1, y1, x2, y2 in its pixels.
    return conv5_3, np.hstack([np.zeros((100, 1)), proposals]).astype(np.float32)


def main() -> None:
    """Pool three times, each time less as Caffe did it."""
    conv5_3, rois = blobs()

    # 1. The layer as it is: its parameters are the arguments, the blobs NumPy arrays. Weights that
    #    were trained with Caffe need exactly these numbers.
    pool5, argmax = caffe.roi_pooling(conv5_3, rois, 7, 7, 0.0625)
    print("pool5", pool5.shape)

    # 2. The same values by roipool's own operation, without Caffe's batch column: all boxes lie in
    #    picture 0. Only bins of NaN or -inf differ: Caffe's maximum starts at -3.4e38.
    images = np.zeros(len(rois), np.int64)
    same = roipool.roi_pool(conv5_3, rois[:, 1:], 7, 1 / STRIDE, batch_indices=images)
    print("bitwise equal:", np.array_equal(same, pool5))

    # 3. Both round boxes to whole cells, 16 pixels apart. What a new model should use does not.
    #    Caffe's last coordinate is the last pixel that belongs to the box, hence the 1.
    boxes = rois[:, 1:] + np.float32([0, 0, 1, 1])
    aligned = roipool.roi_align(conv5_3, boxes, 7, 1 / STRIDE, 2, batch_indices=images)
    print("aligned", aligned.shape)

    # Training needs the way back. Caffe's own backward gives a reversed box no gradient, although
    # its forward pools it as one cell; `exact_gradient=True` does. Proposals are not reversed.
    top_diff = np.ones_like(pool5)
    arguments = (top_diff, argmax, rois, conv5_3.shape, 7, 7, 0.0625)
    as_caffe = caffe.roi_pooling_backward(*arguments)
    exact = caffe.roi_pooling_backward(*arguments, exact_gradient=True)
    print("gradients equal:", np.array_equal(as_caffe, exact))


if __name__ == "__main__":
    main()
