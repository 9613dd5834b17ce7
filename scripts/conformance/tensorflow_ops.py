"""TensorFlow's crop_and_resize as functions of NumPy arrays."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf


def crop_and_resize(
    image: Any, boxes: Any, box_indices: Any, crop_size: Any, *, extrapolation_value: float
) -> Any:
    """Crop."""
    return tf.image.crop_and_resize(
        image, boxes, box_indices.astype(np.int32), crop_size,
        extrapolation_value=extrapolation_value,
    )  # fmt: skip


def crop_and_resize_backward(grads: Any, boxes: Any, box_indices: Any, image_size: Any) -> Any:
    """Return the gradient of the image."""
    return tf.raw_ops.CropAndResizeGradImage(
        grads=grads, boxes=boxes, box_ind=box_indices.astype(np.int32),
        image_size=np.array(image_size, np.int32), T=tf.float32,
    )  # fmt: skip
