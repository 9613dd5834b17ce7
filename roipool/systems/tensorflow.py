"""TensorFlow's systems: see `roipool.compat.tensorflow`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool._dtypes import INTEGERS
from roipool.reference import CROP_AND_RESIZE
from roipool.systems import boxes, core
from roipool.systems.oracles import CROP
from roipool.systems.row import Compared, Oracle, System
from roipool.systems.stored import Answer, Golden


def _largest_slope(golden: Golden) -> float:
    largest = np.abs(golden.grad).max() * np.abs(golden.features).max()
    return float(largest * max(golden.features.shape[2:]))


def boxes_of(golden: Golden) -> dict[str, Any]:
    """Return the boxes as fractions, and what the answers' crops have outside the map."""
    return {"boxes": golden.boxes, "extrapolation_value": 0.5}


_CROP = System(
    "compat.tensorflow.crop_and_resize",
    "compat.tensorflow.crop_and_resize_backward",
    "compat.tensorflow.crop_and_resize_backward_boxes",
    options=("extrapolation_value",),
    samples="one",
    boxes=boxes.fractions,
    dtypes=("float32", *INTEGERS),
    layouts=("NHWC",),
    finite=True,
    names={"image": "features", "grads": "grad_output", "image_size": "input_shape"},
    oracle=Oracle(CROP),
    asked={"operation": "crop_and_resize"},
    goldens={
        "tensorflow bilinear": Answer("tensorflow", "bilinear", options=boxes_of),
        "tensorflow bilinear gradient": Answer(
            "tensorflow", "bilinear_grad", "gradient", options=boxes_of
        ),
        **{
            f"tensorflow {method} box gradient": Answer(
                "tensorflow",
                f"{method}_grad_boxes",
                "box_gradient",
                terms=_largest_slope,
                options=boxes_of,
            )
            for method in ("bilinear", "nearest")
        },
    },
    compared={
        "tensorflow.crop_and_resize": Compared(
            box_gradient=boxes.of_fractions,
            libraries=("tensorflow",),
            rules=CROP_AND_RESIZE,
            example="tensorflow.crop_and_resize(x_nhwc, fractions, [0], (2, 2))",
        )
    },
)
SYSTEMS = {
    "tensorflow.crop_and_resize": _CROP,
    "tensorflow.crop_and_resize nearest": _CROP.only_called(
        box_gradient="",
        fixed={"method": "nearest"},
        oracle=Oracle(
            core.SYSTEMS["crop_and_resize nearest"]._replace(
                fixed={"method": "nearest", "pinned": False}
            )
        ),
        goldens={
            "tensorflow nearest": Answer("tensorflow", "nearest", exact=True, options=boxes_of),
            "tensorflow nearest gradient": Answer(
                "tensorflow", "nearest_grad", "gradient", options=boxes_of
            ),
        },
    ),
}
