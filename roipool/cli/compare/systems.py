"""The systems that can be compared: a table from the name shown to a callable.

Every callable takes the features ``(N, C, H, W)`` in float32, the boxes ``(K, 5)`` in float32
with rows ``[batch_index, x1, y1, x2, y2]`` in image pixels, and the options; it returns
``(K, C, PH, PW)``. To add a system, write its call and give it a line in `SYSTEMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool.compat import (
    caffe,
    chainer,
    detectron2,
    maskrcnn_benchmark,
    mmcv,
    mxnet,
    onnx,
    roialign_pytorch,
    tensorflow,
    torchvision,
)

__all__ = ["SYSTEMS", "Options", "System", "choose"]

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Options:
    """What all systems are asked to compute.

    Attributes
    ----------
    output_size : tuple of int
        Rows and columns of every pooled grid.
    spatial_scale : float
        What box coordinates are multiplied by to land on the map.
    sampling_ratio : int
        Samples per bin and axis for the systems that have a choice; 0 lets the box decide.
    """

    output_size: tuple[int, int] = (7, 7)
    spatial_scale: float = 1.0
    sampling_ratio: int = 0


System = Callable[[FloatArray, FloatArray, Options], Any]


def _roi_pool(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return roipool.roi_pool(x, rois, o.output_size, o.spatial_scale)


def _roi_average_pool(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return roipool.roi_average_pool(x, rois, o.output_size, o.spatial_scale)


def _roi_align(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return roipool.roi_align(x, rois, o.output_size, o.spatial_scale, o.sampling_ratio)


def _roi_align_max(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return roipool.roi_align(x, rois, o.output_size, o.spatial_scale, o.sampling_ratio, mode="max")


def _caffe_roi_pooling(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return caffe.roi_pooling(x, rois, *o.output_size, o.spatial_scale)[0]


def _caffe_roi_align(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return caffe.roi_align(x, rois, *o.output_size, o.spatial_scale)[0]


def _chainer_average(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    yx, images = rois[:, [2, 1, 4, 3]], rois[:, 0]
    return chainer.roi_average_pooling_2d(x, yx, images, o.output_size, o.spatial_scale)


def _mxnet_roi_pooling(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return mxnet.ROIPooling(x, rois, o.output_size, o.spatial_scale)


def _mxnet_roi_align(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return mxnet.ROIAlign(x, rois, o.output_size, o.spatial_scale)


def _mxnet_contrib_roi_align(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return mxnet.contrib_ROIAlign(
        x, rois, o.output_size, o.spatial_scale, _minus_one_if_adaptive(o)
    )


def _mmcv_roi_align(mode: str) -> System:
    def call(x: FloatArray, rois: FloatArray, o: Options) -> Any:
        return mmcv.roi_align(x, rois, o.output_size, o.spatial_scale, o.sampling_ratio, mode, True)

    return call


def _mmcv_roi_pool(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return mmcv.roi_pool(x, rois, o.output_size, o.spatial_scale)


def _maskrcnn_benchmark(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return maskrcnn_benchmark.roi_align(x, rois, o.output_size, o.spatial_scale, o.sampling_ratio)


def _tensorflow(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    height, width = x.shape[2:]
    x1, y1, x2, y2 = (rois[:, 1:] * np.float32(o.spatial_scale)).T
    # Pixel centres lie on 0 ... 1. On a map one pixel wide every box means that pixel.
    down, across = np.float32(max(height - 1, 1)), np.float32(max(width - 1, 1))
    boxes = np.stack([y1 / down, x1 / across, y2 / down, x2 / across], axis=1)
    image = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    crops = tensorflow.crop_and_resize(image, boxes, rois[:, 0].astype(np.int32), o.output_size)
    return np.asarray(crops).transpose(0, 3, 1, 2)


def _roialign_pytorch(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    boxes = rois[:, 1:] * np.float32(o.spatial_scale)
    return roialign_pytorch.RoIAlign(*o.output_size)(x, boxes, rois[:, 0].astype(np.int32))


def _torchvision_roi_pool(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return torchvision.roi_pool(x, rois, o.output_size, o.spatial_scale)


def _torchvision_roi_align(aligned: bool) -> System:
    def call(x: FloatArray, rois: FloatArray, o: Options) -> Any:
        return torchvision.roi_align(
            x, rois, o.output_size, o.spatial_scale, _minus_one_if_adaptive(o), aligned
        )

    return call


def _detectron2(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return detectron2.ROIAlign(o.output_size, o.spatial_scale, o.sampling_ratio)(x, rois)


def _onnx_roi_align(mode: str, transformation: str) -> System:
    def call(x: FloatArray, rois: FloatArray, o: Options) -> Any:
        return onnx.RoiAlign(
            x,
            rois[:, 1:],
            rois[:, 0].astype(np.int64),
            mode=mode,
            output_height=o.output_size[0],
            output_width=o.output_size[1],
            sampling_ratio=o.sampling_ratio,
            spatial_scale=o.spatial_scale,
            coordinate_transformation_mode=transformation,
        )

    return call


def _onnx_max_roi_pool(x: FloatArray, rois: FloatArray, o: Options) -> Any:
    return onnx.MaxRoiPool(x, rois, pooled_shape=o.output_size, spatial_scale=o.spatial_scale)


def _minus_one_if_adaptive(o: Options) -> int:
    return o.sampling_ratio or -1


SYSTEMS: dict[str, System] = {
    "roipool.roi_pool": _roi_pool,
    "roipool.roi_average_pool": _roi_average_pool,
    "roipool.roi_align": _roi_align,
    "roipool.roi_align[max]": _roi_align_max,
    "caffe.roi_pooling": _caffe_roi_pooling,
    "caffe.roi_align": _caffe_roi_align,
    "chainer.roi_average_pooling_2d": _chainer_average,
    "mxnet.ROIPooling": _mxnet_roi_pooling,
    "mxnet.ROIAlign": _mxnet_roi_align,
    "mxnet.contrib_ROIAlign": _mxnet_contrib_roi_align,
    "mmcv.roi_align": _mmcv_roi_align("avg"),
    "mmcv.roi_align[max]": _mmcv_roi_align("max"),
    "mmcv.roi_pool": _mmcv_roi_pool,
    "maskrcnn_benchmark.roi_align": _maskrcnn_benchmark,
    "tensorflow.crop_and_resize": _tensorflow,
    "roialign_pytorch.RoIAlign": _roialign_pytorch,
    "torchvision.roi_pool": _torchvision_roi_pool,
    "torchvision.roi_align": _torchvision_roi_align(aligned=False),
    "torchvision.roi_align[aligned]": _torchvision_roi_align(aligned=True),
    "detectron2.ROIAlign": _detectron2,
    "onnx.RoiAlign[opset 10]": _onnx_roi_align("avg", "output_half_pixel"),
    "onnx.RoiAlign[opset 16]": _onnx_roi_align("avg", "half_pixel"),
    "onnx.RoiAlign[max]": _onnx_roi_align("max", "half_pixel"),
    "onnx.MaxRoiPool": _onnx_max_roi_pool,
}


def choose(text: str | None, systems: Mapping[str, System]) -> list[str]:
    """Find the systems a user means.

    Parameters
    ----------
    text : str or None
        Comma-separated names, prefixes that fit one system only, or patterns with ``*`` and
        ``?``. Upper and lower case are the same. None means every system.
    systems : mapping of str to System
        Those that there are, by name.

    Returns
    -------
    list of str
        Keys of `systems` in the order asked for, each once.

    Raises
    ------
    ValueError
        If a part fits no system, or a prefix fits several.
    """
    if text is None:
        return list(systems)
    parts = [part.strip() for part in text.split(",")]
    names = [name for part in parts if part for name in _matches(part, systems)]
    if not names:
        raise ValueError(f"no system named; there are: {', '.join(systems)}")
    return list(dict.fromkeys(names))


def _matches(part: str, systems: Mapping[str, System]) -> list[str]:
    lowered = part.lower()
    exact = [name for name in systems if name.lower() == lowered]
    if exact:
        return exact
    if "*" in lowered or "?" in lowered:
        # Square brackets belong to the names, so they must not open a character class.
        pattern = lowered.replace("[", "[[]")
        matches = [name for name in systems if fnmatchcase(name.lower(), pattern)]
    else:
        matches = [name for name in systems if name.lower().startswith(lowered)]
        if len(matches) > 1:
            raise ValueError(f"{part!r} fits several systems: {', '.join(matches)}")
    if not matches:
        raise ValueError(f"there is no system {part!r}; there are: {', '.join(systems)}")
    return matches
