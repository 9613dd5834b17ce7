"""The layers of every system: how each is made, called and shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from roipool.compat import (
    detectron2,
    maskrcnn_benchmark,
    medicaldetectiontoolkit,
    medvision,
    mmcv,
    model_garden,
    paddle,
    precise_roi_pooling,
    roialign_pytorch,
    torchvision,
)


class LayerCase(NamedTuple):
    """A layer and a call of it."""

    make: Callable[[], Any]  # returns a new layer
    arguments: tuple[Any, ...]  # arguments of a call, in NumPy; the maps are the first
    shown: str  # the layer's ``repr``


def _maps(*shape: int) -> Any:
    values = np.random.default_rng(3).permutation(int(np.prod(shape)))
    return (values / values.size).astype(np.float32).reshape(shape)


_MAPS = _maps(2, 6, 9, 9)
_ROWS = np.array([[0, 1, 1, 6, 7], [1, 2, 0.5, 7, 4], [0, 3, 3, 4, 8]], np.float32)
_TURNED = np.array([[0, 4, 4, 5, 3, 0.5], [1, 3, 5, 4, 4, -1]], np.float32)
_FRACTIONS = np.array([[0, 0.1, 0.7, 0.9], [0.25, 0, 1, 0.5]], np.float32)
_CELLS = np.ascontiguousarray(_ROWS[:2, 1:])
_IMAGES = np.array([1, 0], np.int32)
_COUNTS = np.array([2, 1], np.int32)
_OFFSETS = _maps(3, 2, 2, 3) - np.float32(0.5)
_VOLUMES = _maps(2, 2, 6, 7, 5)
_CUBOIDS = np.array([[0, 1, 1, 5, 6, 0, 4], [1, 0, 2, 4, 5, 1, 3]], np.float32)
_TABLES = [np.array([[4, 4, 50, 60]], np.float32), np.array([[0, 8, 250, 260]], np.float32)]
_TURNED_TABLES = [np.array([[40, 30, 50, 60, 20]], np.float32)] * 2
_PYRAMID = [_maps(2, 2, 32, 32), _maps(2, 2, 16, 16)]
_NHWC = {
    str(level): np.ascontiguousarray(each.transpose(0, 2, 3, 1))
    for level, each in zip((3, 4), _PYRAMID, strict=True)
}

_BY_ROWS = _MAPS, _ROWS
_BY_IMAGE = _MAPS, np.ascontiguousarray(_ROWS[:, 1:]), _COUNTS
LAYERS = {
    "torchvision.RoIAlign": LayerCase(
        lambda: torchvision.RoIAlign((2, 3), 0.5, 2),
        _BY_ROWS,
        "RoIAlign(output_size=(2, 3), spatial_scale=0.5, sampling_ratio=2, aligned=False)",
    ),
    "torchvision.RoIPool": LayerCase(
        lambda: torchvision.RoIPool(2, 0.5), _BY_ROWS, "RoIPool(output_size=2, spatial_scale=0.5)"
    ),
    "torchvision.PSRoIPool": LayerCase(
        lambda: torchvision.PSRoIPool((2, 3), 0.5),
        _BY_ROWS,
        "PSRoIPool(output_size=(2, 3), spatial_scale=0.5)",
    ),
    "torchvision.PSRoIAlign": LayerCase(
        lambda: torchvision.PSRoIAlign((2, 3), 1.0, 2),
        _BY_ROWS,
        "PSRoIAlign(output_size=(2, 3), spatial_scale=1.0, sampling_ratio=2)",
    ),
    "torchvision.MultiScaleRoIAlign": LayerCase(
        lambda: torchvision.MultiScaleRoIAlign(["0", "1"], 2, 2),
        (dict(zip("01", _PYRAMID, strict=True)), _TABLES, [(256, 256), (200, 240)]),
        "MultiScaleRoIAlign(featmap_names=['0', '1'], output_size=(2, 2), sampling_ratio=2)",
    ),
    "detectron2.ROIAlign": LayerCase(
        lambda: detectron2.ROIAlign(2, 0.5, 0),
        _BY_ROWS,
        "ROIAlign(output_size=2, spatial_scale=0.5, sampling_ratio=0, aligned=True)",
    ),
    "detectron2.ROIAlignRotated": LayerCase(
        lambda: detectron2.ROIAlignRotated(2, 1.0, 2),
        (_MAPS, _TURNED),
        "ROIAlignRotated(output_size=2, spatial_scale=1.0, sampling_ratio=2)",
    ),
    **{
        f"detectron2.ROIPooler of {kind}": LayerCase(
            lambda kind=kind: detectron2.ROIPooler(2, (1 / 8, 1 / 16), 2, kind),
            (_PYRAMID, _TURNED_TABLES if kind == "ROIAlignRotated" else _TABLES),
            f"ROIPooler(output_size=(2, 2), scales=(0.125, 0.0625), sampling_ratio=2, "
            f"pooler_type={kind!r})",
        )
        for kind in ("ROIAlign", "ROIAlignV2", "ROIAlignRotated", "ROIPool")
    },
    "maskrcnn_benchmark.ROIAlign": LayerCase(
        lambda: maskrcnn_benchmark.ROIAlign((2, 3), 0.5, 2),
        _BY_ROWS,
        "ROIAlign(output_size=(2, 3), spatial_scale=0.5, sampling_ratio=2)",
    ),
    "maskrcnn_benchmark.ROIPool": LayerCase(
        lambda: maskrcnn_benchmark.ROIPool((2, 3), 0.5),
        _BY_ROWS,
        "ROIPool(output_size=(2, 3), spatial_scale=0.5)",
    ),
    "medicaldetectiontoolkit.RoIAlign": LayerCase(
        lambda: medicaldetectiontoolkit.RoIAlign((2, 3, 2)),
        (_VOLUMES, _CUBOIDS),
        "RoIAlign(output_size=(2, 3, 2), spatial_scale=1.0, sampling_ratio=-1)",
    ),
    "medvision.RoIAlign": LayerCase(
        lambda: medvision.RoIAlign((2, 2, 3), 0.5, 2),
        (_VOLUMES, _CUBOIDS),
        "RoIAlign(output_size=(2, 2, 3), spatial_scale=0.5, sampling_ratio=2)",
    ),
    "mmcv.RoIAlign": LayerCase(
        lambda: mmcv.RoIAlign(2, 0.5, 2),
        _BY_ROWS,
        "RoIAlign(output_size=(2, 2), spatial_scale=0.5, sampling_ratio=2, pool_mode=avg, "
        "aligned=True, use_torchvision=False)",
    ),
    "mmcv.RoIAlign max": LayerCase(
        lambda: mmcv.RoIAlign(2, 0.5, 2, "max"),
        _BY_ROWS,
        "RoIAlign(output_size=(2, 2), spatial_scale=0.5, sampling_ratio=2, pool_mode=max, "
        "aligned=True, use_torchvision=False)",
    ),
    "mmcv.RoIPool": LayerCase(
        lambda: mmcv.RoIPool(2, 0.5), _BY_ROWS, "RoIPool(output_size=(2, 2), spatial_scale=0.5)"
    ),
    "mmcv.PrRoIPool": LayerCase(
        lambda: mmcv.PrRoIPool(2), _BY_ROWS, "PrRoIPool(output_size=(2, 2), spatial_scale=1.0)"
    ),
    "mmcv.DeformRoIPool": LayerCase(
        lambda: mmcv.DeformRoIPool((2, 3)),
        (*_BY_ROWS, _OFFSETS),
        "DeformRoIPool(output_size=(2, 3), spatial_scale=1.0, sampling_ratio=0, gamma=0.1)",
    ),
    "mmcv.RoIAlignRotated": LayerCase(
        lambda: mmcv.RoIAlignRotated(2, 1.0, 2),
        (_MAPS, _TURNED),
        "RoIAlignRotated(output_size=(2, 2), spatial_scale=1.0, sampling_ratio=2, aligned=True, "
        "clockwise=False)",
    ),
    "mmcv.RiRoIAlignRotated": LayerCase(
        lambda: mmcv.RiRoIAlignRotated(2, 1.0, 2, 3),
        (_MAPS, _TURNED),
        "RiRoIAlignRotated(out_size=(2, 2), spatial_scale=1.0, num_samples=2, "
        "num_orientations=3, clockwise=False)",
    ),
    "model_garden.MultilevelROIAligner": LayerCase(
        lambda: model_garden.MultilevelROIAligner(2),
        (_NHWC, np.array([[[4, 4, 50, 60]], [[0, 8, 250, 260]]], np.float32)),
        "MultilevelROIAligner(crop_size=2, sample_offset=0.5)",
    ),
    "paddle.RoIAlign": LayerCase(
        lambda: paddle.RoIAlign(2, 0.5), _BY_IMAGE, "RoIAlign(output_size=2, spatial_scale=0.5)"
    ),
    "paddle.RoIPool": LayerCase(
        lambda: paddle.RoIPool(2), _BY_IMAGE, "RoIPool(output_size=2, spatial_scale=1.0)"
    ),
    "paddle.PSRoIPool": LayerCase(
        lambda: paddle.PSRoIPool((2, 3)),
        _BY_IMAGE,
        "PSRoIPool(output_size=(2, 3), spatial_scale=1.0)",
    ),
    "precise_roi_pooling.PrRoIPool2D": LayerCase(
        lambda: precise_roi_pooling.PrRoIPool2D(2, 3, 0.5),
        _BY_ROWS,
        "PrRoIPool2D(kernel_size=(2, 3), spatial_scale=0.5)",
    ),
    "roialign_pytorch.CropAndResize": LayerCase(
        lambda: roialign_pytorch.CropAndResize(2, 3),
        (_MAPS, _FRACTIONS, _IMAGES),
        "CropAndResize(crop_height=2, crop_width=3, extrapolation_value=0)",
    ),
    "roialign_pytorch.RoIAlign": LayerCase(
        lambda: roialign_pytorch.RoIAlign(2, 3),
        (_MAPS, _CELLS, _IMAGES),
        "RoIAlign(crop_height=2, crop_width=3, extrapolation_value=0.0, transform_fpcoor=True)",
    ),
}
