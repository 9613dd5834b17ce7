"""The rules of each system, in the vocabulary of the oracle.

To say *why* two systems differ, their rules must be exchanged one at a time: what is the value if
only the rounding of the box is the other's? `roipool.tools.compare.evaluation` computes it.
"""

from __future__ import annotations

from dataclasses import replace

from roipool.reference import (
    CAFFE_ROI_ALIGN,
    CROP_AND_RESIZE,
    MMCV_ROI_ALIGN_MAX,
    MMCV_ROI_POOL,
    MXNET_ROI_ALIGN,
    ONNX_ROI_ALIGN_MAX,
    PRECISE_ROI_POOL,
    ROI_ALIGN,
    ROI_AVERAGE_POOL,
    ROI_POOL,
    Rules,
)
from roipool.tools.compare.patterns import system_of

__all__ = ["RULES", "rules_of"]

_ALIGN = ROI_ALIGN.of_boxes(aligned=False)
_ALIGNED = ROI_ALIGN.of_boxes(aligned=True)

RULES: dict[str, Rules] = {
    "roipool.roi_pool": ROI_POOL,
    "roipool.roi_average_pool": ROI_AVERAGE_POOL,
    "roipool.precise_roi_pool": PRECISE_ROI_POOL,
    "roipool.roi_align": _ALIGNED,
    "roipool.roi_align[max]": replace(_ALIGNED, reduce="max"),
    "roipool.roi_align_rotated": _ALIGNED,
    "caffe.roi_pooling": ROI_POOL,
    "caffe.roi_align": CAFFE_ROI_ALIGN,
    "chainer.roi_pooling_2d": replace(ROI_POOL, rounding="half even"),
    "chainer.roi_average_pooling_2d": replace(ROI_AVERAGE_POOL, rounding="half even"),
    "mxnet.ROIPooling": ROI_POOL,
    "mxnet.ROIAlign": MXNET_ROI_ALIGN,
    "mxnet.contrib_ROIAlign": _ALIGN,
    "mmcv.roi_align": _ALIGNED,
    "mmcv.roi_align[max]": MMCV_ROI_ALIGN_MAX.of_boxes(aligned=True),
    "mmcv.roi_align_rotated": _ALIGNED,
    "mmcv.roi_pool": MMCV_ROI_POOL,
    "maskrcnn_benchmark.roi_align": _ALIGN,
    "tensorflow.crop_and_resize": CROP_AND_RESIZE,
    "roialign_pytorch.RoIAlign": replace(_ALIGNED, ratio=1, border="zero"),
    "torchvision.roi_pool": ROI_POOL,
    "torchvision.roi_align": _ALIGN,
    "torchvision.roi_align[aligned]": _ALIGNED,
    "detectron2.ROIAlign": _ALIGNED,
    "detectron2.ROIAlignRotated": _ALIGNED,
    "onnx.RoiAlign[opset 10]": _ALIGN,
    "onnx.RoiAlign[opset 16]": _ALIGNED,
    "onnx.RoiAlign[max]": ONNX_ROI_ALIGN_MAX.of_boxes(aligned=True),
    "onnx.MaxRoiPool": ROI_POOL,
    "openvino.ROIPooling": ROI_POOL,
    "openvino.ROIAlign[asymmetric]": _ALIGN,
    "openvino.ROIAlign[half_pixel_for_nn]": _ALIGNED,
    "paddle.roi_pool": ROI_POOL,
    "paddle.roi_align": _ALIGNED,
    "paddle.roi_align[not aligned]": _ALIGN,
}


def rules_of(name: str) -> Rules | None:
    """Return the rules of an implementation, by its name; None for a user's own."""
    return RULES.get(system_of(name))
