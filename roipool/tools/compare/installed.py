"""What is compared of each installed program: its systems, and what its library is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["OFFERS"]

_POOL = {"operation": "roi_pool"}
_ALIGN = {"operation": "roi_align", "aligned": False}
_ALIGNED = {"operation": "roi_align", "aligned": True}
_ROTATED = {"operation": "roi_align_rotated", "aligned": True}
_MAX = {**_ALIGNED, "mode": "max"}
_MAX_OF_CORNERS = {**_ALIGNED, "mode": "max of corners"}
_CROP = {"operation": "crop_and_resize", "layout": "NHWC"}

# What is compared of each program: a system's name, and what its library is asked for it.
OFFERS: dict[str, Mapping[str, Mapping[str, Any]]] = {
    "torchvision": {
        "torchvision.roi_pool": _POOL,
        "torchvision.roi_align": _ALIGN,
        "torchvision.roi_align[aligned]": _ALIGNED,
    },
    "mmcv": {
        "mmcv.roi_align": _ALIGNED,
        "mmcv.roi_align[max]": _MAX,
        "mmcv.roi_pool": _POOL,
        "mmcv.roi_align_rotated": _ROTATED,
    },
    "detectron2": {"detectron2.ROIAlign": _ALIGNED, "detectron2.ROIAlignRotated": _ROTATED},
    "onnxruntime": {
        "onnx.RoiAlign[opset 10]": _ALIGN,
        "onnx.RoiAlign[opset 16]": _ALIGNED,
        "onnx.RoiAlign[max]": _MAX_OF_CORNERS,
        "onnx.MaxRoiPool": _POOL,
    },
    "openvino": {
        "openvino.ROIPooling": _POOL,
        "openvino.ROIAlign[asymmetric]": _ALIGN,
        "openvino.ROIAlign[half_pixel_for_nn]": _ALIGNED,
    },
    "tensorflow": {"tensorflow.crop_and_resize": _CROP},
    "mxnet": {"mxnet.ROIPooling": _POOL, "mxnet.contrib_ROIAlign": _ALIGN},
    "paddle": {
        "paddle.roi_pool": _POOL,
        "paddle.roi_align": _ALIGNED,
        "paddle.roi_align[not aligned]": _ALIGN,
    },
}
