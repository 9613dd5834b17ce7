"""ROI align with a gradient for TensorFlow, in eager code and in ``tf.function``.

``python examples/tensorflow_gradient.py`` compares its gradient with finite differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import roipool


@tf.custom_gradient
def roi_align(features: Any, rois: Any) -> Any:
    """Pool (N, C, H, W) maps; rows of rois are batch index, x1, y1, x2, y2."""

    def forward(maps: Any, boxes: Any) -> Any:
        return roipool.roi_align(maps, boxes, output_size=2, sampling_ratio=2)

    def backward(grad: Any, boxes: Any, shape: Any) -> Any:
        return roipool.roi_align_backward(grad, boxes, shape.tolist(), sampling_ratio=2)

    def backward_boxes(grad: Any, maps: Any, boxes: Any) -> Any:
        slopes = roipool.roi_align_backward_rois(grad, maps, boxes, sampling_ratio=2)
        return np.pad(slopes, ((0, 0), (1, 0)))

    pooled = tf.numpy_function(forward, [features, rois], features.dtype, stateful=False)
    pooled.set_shape([rois.shape[0], features.shape[1], 2, 2])

    def gradient(upstream: Any) -> tuple[Any, Any]:
        at = [upstream, rois, tf.shape(features)]
        by_maps = tf.numpy_function(backward, at, features.dtype, stateful=False)
        by_boxes = tf.numpy_function(
            backward_boxes, [upstream, features, rois], rois.dtype, stateful=False
        )
        return tf.ensure_shape(by_maps, features.shape), tf.ensure_shape(by_boxes, rois.shape)

    return pooled, gradient


def main() -> None:
    """Compare gradients with finite differences, and eager code with a compiled graph."""
    rng = np.random.default_rng(0)
    features = tf.constant(rng.normal(size=(2, 3, 8, 9)))
    indices = tf.constant([[0.0], [1.0]], tf.float64)
    boxes = tf.constant([[1.1, 1.2, 6.3, 6.4], [0.4, 2.3, 5.2, 7.3]], tf.float64)
    rois = tf.concat([indices, boxes], 1)
    # Without a gradient, tensors go into every function as they are, and come out.
    assert isinstance(roipool.roi_align(features, rois, 2, sampling_ratio=2), tf.Tensor)

    def loss(maps: Any, corners: Any) -> Any:
        return tf.reduce_sum(roi_align(maps, tf.concat([indices, corners], 1)) ** 2)

    computed, numeric = tf.test.compute_gradient(loss, [features, boxes], delta=1e-5)
    for got, expected in zip(computed, numeric, strict=True):
        error = np.abs(got - expected).max()
        print(f"largest difference {error:.1e}")
        if error > 1e-6:
            raise SystemExit("not the gradient")
    compiled = tf.function(loss)
    if float(compiled(features, boxes)) != float(loss(features, boxes)):
        raise SystemExit("the graph computes something else")


if __name__ == "__main__":
    main()
