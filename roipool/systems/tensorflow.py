"""TensorFlow's systems: see `roipool.compat.tensorflow`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool._dtypes import BYTES
from roipool._types import Method
from roipool.compat import tensorflow
from roipool.reference import CROP_AND_RESIZE
from roipool.systems import boxes, core
from roipool.systems.oracles import CROP
from roipool.systems.row import Compared, Oracle, System
from roipool.verification.released import Answer, Case


def _nhwc(array: Any) -> Any:
    return array.transpose(0, 2, 3, 1)


def _cropped(case: Case, method: Method) -> Any:
    return tensorflow.crop_and_resize(
        _nhwc(case.features), case.boxes, case.images, case.size, method, 0.5
    )


def _gradient(case: Case, method: Method) -> Any:
    return tensorflow.crop_and_resize_backward(
        _nhwc(case.grad), case.boxes, case.images, _nhwc(case.features).shape, np.float32, method
    )


def _box_gradient(case: Case) -> Any:
    return tensorflow.crop_and_resize_backward_boxes(
        _nhwc(case.grad), _nhwc(case.features), case.boxes, case.images
    )


def _largest_slope(case: Case) -> float:
    largest = np.abs(case.grad).max() * np.abs(case.features).max()
    return float(largest * max(case.features.shape[2:]))


_CROP = System(
    "compat.tensorflow.crop_and_resize",
    "compat.tensorflow.crop_and_resize_backward",
    "compat.tensorflow.crop_and_resize_backward_boxes",
    options=("extrapolation_value",),
    samples="one",
    boxes=boxes.fractions,
    dtypes=("float32", *BYTES),
    layouts=("NHWC",),
    finite=True,
    names={"image": "features", "grads": "grad_output", "image_size": "input_shape"},
    oracle=Oracle(CROP),
    asked={"operation": "crop_and_resize"},
    goldens={
        "tensorflow bilinear": Answer("tensorflow", "bilinear", lambda c: _cropped(c, "bilinear")),
        "tensorflow bilinear gradient": Answer(
            "tensorflow", "bilinear_grad", lambda c: _gradient(c, "bilinear")
        ),
        "tensorflow bilinear box gradient": Answer(
            "tensorflow", "bilinear_grad_boxes", _box_gradient, terms=_largest_slope
        ),
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
            "tensorflow nearest": Answer(
                "tensorflow", "nearest", lambda c: _cropped(c, "nearest"), True
            ),
            "tensorflow nearest gradient": Answer(
                "tensorflow", "nearest_grad", lambda c: _gradient(c, "nearest")
            ),
            "tensorflow nearest box gradient": Answer(
                "tensorflow", "nearest_grad_boxes", _box_gradient, terms=_largest_slope
            ),
        },
    ),
}
