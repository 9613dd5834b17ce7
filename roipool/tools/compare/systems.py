"""The systems that can be compared, by the names that are shown.

A system is a row of the table of operations that `roipool.tools.random_calls` draws calls
from: it knows the function, its gradients, the names of their arguments and the oracle. Here stands
what the comparison adds: options that tell systems of one function apart, and how they take boxes.
To add a system, give it a line in `SYSTEMS`, and its rules one in `roipool.tools.compare.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from roipool.verification.case import Case

__all__ = ["SYSTEMS", "System"]

FloatArray = NDArray[np.float32]


class System(NamedTuple):
    """One system.

    Attributes
    ----------
    operation : str
        A row of `roipool.verification.operations.OPERATIONS`.
    options : mapping
        Its arguments besides those that the user chooses.
    changes : mapping
        Fields of the row that differ here.
    box_gradient : callable or None
        From the case and the operation's gradient with respect to its own boxes to that with
        respect to x1, y1, x2, y2 in pixels.
    rotated : bool
        Whether it takes boxes with an angle; it then takes others as boxes with the angle 0.
    oracle : tuple of str
        What the oracle has of it; some released gradients are not those of the forward.
    """

    operation: str
    options: Mapping[str, Any] = {}
    changes: Mapping[str, Any] = {}
    box_gradient: Callable[[Case, FloatArray], FloatArray] | None = None
    rotated: bool = False
    oracle: tuple[str, ...] = ("forward", "features", "boxes")


def _tensorflow_boxes(case: Case) -> dict[str, Any]:
    """Return pixels as fractions of the way from the first cell's centre to the last one's."""
    x1, y1, x2, y2 = (case.rois[:, 1:] * np.float32(case.options["spatial_scale"])).T
    down, across = _last_cells(case)
    boxes = np.stack([y1 / down, x1 / across, y2 / down, x2 / across], axis=1)
    return {"boxes": boxes, "box_indices": case.images}


def _last_cells(case: Case) -> tuple[np.float32, np.float32]:
    """Return the last row and column; a map of one is divided by 1: every box then means it."""
    height, width = case.maps.shape[2:]
    return np.float32(max(height - 1, 1)), np.float32(max(width - 1, 1))


def _tensorflow_box_gradient(case: Case, gradient: FloatArray) -> FloatArray:
    scale = np.float32(case.options["spatial_scale"])
    down, across = _last_cells(case)
    pixels = gradient[:, [1, 0, 3, 2]] * scale
    return np.asarray(pixels / np.array([across, down, across, down], np.float32))


def _roialign_pytorch_boxes(case: Case) -> dict[str, Any]:
    """Return what its ``RoIAlign`` gives to its crop_and_resize: centres of bins, shifted."""
    boxes = case.rois[:, 1:] * np.float32(case.options["spatial_scale"])
    ends = [
        _first_and_last_centre(boxes[:, axis], boxes[:, axis + 2], cells, np.float32(size - 1))
        for axis, cells, size in zip((1, 0), case.size, case.maps.shape[2:], strict=True)
    ]
    (y1, y2), (x1, x2) = ends
    return {"boxes": np.stack([y1, x1, y2, x2], axis=1), "box_indices": case.images}


def _first_and_last_centre(
    low: FloatArray, high: FloatArray, cells: int, last: np.float32
) -> tuple[FloatArray, FloatArray]:
    with np.errstate(all="ignore"):
        spacing = (high - low) / np.float32(cells)
        first = (low + spacing / np.float32(2) - np.float32(0.5)) / last
        return first, first + spacing * np.float32(cells - 1) / last


def _rotated_boxes(case: Case) -> dict[str, Any]:
    """Return boxes with an angle as they are, others with the angle 0."""
    if case.rois.shape[1] == 6:
        return {"rois": case.rois}
    image, x1, y1, x2, y2 = case.rois.T
    half, none = np.float32(0.5), np.zeros_like(x1)
    with np.errstate(all="ignore"):
        centres = (x1 + x2) * half, (y1 + y2) * half
        return {"rois": np.stack([image, *centres, x2 - x1, y2 - y1, none], axis=1)}


def _rotated_box_gradient(case: Case, gradient: FloatArray) -> FloatArray:
    if case.rois.shape[1] == 6:
        return gradient
    by_centre, by_side = gradient[:, :2] / np.float32(2), gradient[:, 2:4]
    return np.concatenate([by_centre - by_side, by_centre + by_side], axis=1)


_ALIGNED = {"aligned": True}
_NOT_ALIGNED = {"aligned": False}
_OPSET_10 = {"coordinate_transformation_mode": "output_half_pixel"}
_OPSET_16 = {"coordinate_transformation_mode": "half_pixel"}
_WITHOUT_BACKWARD = ("forward",)
_ARGMAX = {"return_argmax": True}

SYSTEMS: dict[str, System] = {
    "roipool.roi_pool": System("roi_pool"),
    "roipool.roi_average_pool": System("roi_average_pool"),
    "roipool.precise_roi_pool": System("precise_roi_pool"),
    "roipool.roi_align": System("roi_align", _ALIGNED),
    "roipool.roi_align[max]": System("roi_align max", _ALIGNED),
    "roipool.roi_align_rotated": System(
        "roi_align_rotated",
        {**_ALIGNED, "clockwise": False, "angle_unit": "radians"},
        {"boxes": _rotated_boxes},
        _rotated_box_gradient,
        rotated=True,
    ),
    # Its gradient, as it was released, is not that of the forward.
    "caffe.roi_pooling": System(
        "caffe.roi_pooling", changes={"fixed": {}}, oracle=_WITHOUT_BACKWARD
    ),
    "caffe.roi_align": System(
        "caffe.roi_align", changes={"backward": "compat.caffe.roi_align_backward"}
    ),
    "chainer.roi_average_pooling_2d": System("chainer.roi_average_pooling_2d"),
    "mxnet.ROIPooling": System(
        "mxnet.ROIPooling",
        changes={
            "backward": "compat.mxnet.ROIPooling_backward",
            "fixed": _ARGMAX,
            "returns": ("pooled", "argmax"),
        },
    ),
    "mxnet.ROIAlign": System("mxnet.ROIAlign"),
    "mxnet.contrib_ROIAlign": System("mxnet.contrib_ROIAlign", _NOT_ALIGNED),
    "mmcv.roi_align": System("mmcv.roi_align", _ALIGNED),
    "mmcv.roi_align[max]": System(
        "mmcv.roi_align max", _ALIGNED, {"backward": "compat.mmcv.roi_align_backward"}
    ),
    "mmcv.roi_pool": System("mmcv.roi_pool", changes={"backward": "compat.mmcv.roi_pool_backward"}),
    "maskrcnn_benchmark.roi_align": System("maskrcnn_benchmark.roi_align"),
    "tensorflow.crop_and_resize": System(
        "tensorflow.crop_and_resize",
        changes={"boxes": _tensorflow_boxes},
        box_gradient=_tensorflow_box_gradient,
    ),
    "roialign_pytorch.RoIAlign": System(
        "roialign_pytorch.crop_and_resize", changes={"boxes": _roialign_pytorch_boxes}
    ),
    "torchvision.roi_pool": System("torchvision.roi_pool"),
    "torchvision.roi_align": System("torchvision.roi_align", _NOT_ALIGNED),
    "torchvision.roi_align[aligned]": System("torchvision.roi_align", _ALIGNED),
    # detectron2's layer is torchvision's operator, half a pixel shifted.
    "detectron2.ROIAlign": System("torchvision.roi_align", _ALIGNED),
    "onnx.RoiAlign[opset 10]": System("onnx.RoiAlign", _OPSET_10),
    "onnx.RoiAlign[opset 16]": System("onnx.RoiAlign", _OPSET_16),
    "onnx.RoiAlign[max]": System("onnx.RoiAlign max", _OPSET_16),
    "onnx.MaxRoiPool": System("onnx.MaxRoiPool"),
}
