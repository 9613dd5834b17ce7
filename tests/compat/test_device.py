"""The compat systems on device arrays: nothing is read back, all arrays lie together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.backends import Backend

import roipool
from roipool import compat
from roipool.compat import (
    caffe,
    chainer,
    maskrcnn_benchmark,
    mmcv,
    mxnet,
    onnx,
    roialign_pytorch,
    tensorflow,
    torchvision,
)

SHAPE = (2, 3, 6, 7)  # channels too few for kernels that take several at once
ROIS = np.array([[0, 1, 1, 4, 4], [1, 0.5, 2, 5.5, 5]], np.float32)
GRAD = np.ones((2, 3, 2, 2), np.float32)
WIDE = (2, 8, 6, 7)  # of which a position-sensitive bin has two
INPUTS = {
    "maps": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32),
    "wide_maps": np.random.default_rng(1).standard_normal(WIDE).astype(np.float32),
    "rois": ROIS,
    "four": np.ascontiguousarray(ROIS[:, 1:]),
    "images": np.array([0, 1]),
    "grad": GRAD,
    "grad_nhwc": np.ones((2, 2, 2, 3), np.float32),
    "grad_of_two": np.ones((2, 2, 2, 2), np.float32),
    "grad_of_seven": np.ones((2, 2, 2, 7), np.float32),
    "cells": np.zeros(GRAD.shape, np.int32),
    "places": np.tile(42 * np.arange(6).reshape(2, 3, 1, 1), (1, 1, 2, 2)),
    "real": np.zeros(GRAD.shape, np.float32),
}
NHWC = (2, 6, 7, 3)

# Every function, with names of INPUTS where it takes arrays.
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (caffe.roi_pooling, ("maps", "rois", 2, 2, 1.0)),
    (caffe.roi_pooling_backward, ("grad", "cells", "rois", SHAPE, 2, 2, 1.0)),
    (caffe.roi_align, ("maps", "rois", 2, 2, 1.0)),
    (caffe.roi_align_backward, ("grad", "cells", "cells", "rois", SHAPE, 2, 2, 1.0)),
    (
        partial(caffe.roi_align_backward, exact_gradient=True),
        ("grad", "cells", "cells", "rois", SHAPE, 2, 2, 1.0),
    ),
    (chainer.roi_average_pooling_2d, ("maps", "four", "images", 2, 1.0)),
    (chainer.roi_average_pooling_2d_backward, ("grad", "four", "images", SHAPE, 1.0)),
    (compat.detectron2.ROIAlign(2, 1.0, 0), ("maps", "rois")),
    (compat.detectron2.ROIAlign(2, 1.0, 0).backward, ("grad", "rois", SHAPE)),
    (maskrcnn_benchmark.roi_align, ("maps", "rois", 2, 1.0, 2)),
    (maskrcnn_benchmark.roi_align, ("maps", "four", 2, 1.0, 2)),
    (maskrcnn_benchmark.roi_align_backward, ("grad", "four", SHAPE, 1.0, 2)),
    (mmcv.roi_align, ("maps", "rois", 2)),
    (
        partial(mmcv.roi_align, pool_mode="max", return_argmax=True),
        ("maps", "rois", 2),
    ),
    (mmcv.roi_align_backward, ("grad", "rois", None, None, SHAPE)),
    (
        partial(mmcv.roi_align_backward, pool_mode="max", exact_gradient=True),
        ("grad", "rois", "real", "real", SHAPE),
    ),
    (partial(mmcv.roi_pool, return_argmax=True), ("maps", "rois", 2)),
    (mmcv.roi_pool_backward, ("grad", "rois", "cells", SHAPE)),
    (partial(mmcv.roi_pool_backward, exact_gradient=True), ("grad", "rois", "cells", SHAPE)),
    (partial(mxnet.ROIPooling, return_argmax=True), ("maps", "rois", (2, 2), 1.0)),
    (mxnet.ROIPooling_backward, ("grad", "places", "rois", SHAPE)),
    (mxnet.contrib_ROIAlign, ("maps", "rois", (2, 2), 1.0)),
    (partial(mxnet.contrib_ROIAlign, position_sensitive=True), ("wide_maps", "rois", (2, 2), 1.0)),
    (mxnet.contrib_ROIAlign_backward, ("grad", "rois", SHAPE, 1.0)),
    (
        partial(mxnet.contrib_ROIAlign_backward, position_sensitive=True),
        ("grad_of_two", "rois", WIDE, 1.0),
    ),
    (partial(mxnet.ROIAlign, return_argmax=True), ("maps", "rois", (2, 2), 1.0)),
    (mxnet.ROIAlign_backward, ("grad", "real", "real", "rois", SHAPE, 1.0)),
    (onnx.RoiAlign, ("maps", "four", "images")),
    (partial(onnx.RoiAlign, mode="max"), ("maps", "four", "images")),
    (partial(onnx.RoiAlign_backward, mode="max"), ("grad", "maps", "four", "images")),
    (onnx.RoiAlign_backward, ("grad", "maps", "four", "images")),
    (onnx.MaxRoiPool, ("maps", "rois", (2, 2))),
    (onnx.MaxRoiPool_backward, ("grad", "maps", "rois")),
    (roialign_pytorch.crop_and_resize, ("maps", "four", "images", 2, 2)),
    (roialign_pytorch.crop_and_resize_backward, ("grad", "four", "images", SHAPE)),
    (roialign_pytorch.RoIAlign(2, 2), ("maps", "four", "images")),
    (roialign_pytorch.RoIAlign(2, 2).backward, ("grad", "four", "images", SHAPE)),
    (tensorflow.crop_and_resize, ("maps", "four", "images", (2, 2))),
    (tensorflow.crop_and_resize_backward, ("grad_nhwc", "four", "images", NHWC)),
    (tensorflow.crop_and_resize_backward_boxes, ("grad_of_seven", "maps", "four", "images")),
    (torchvision.roi_align, ("maps", "rois", 2)),
    (torchvision.roi_align_backward, ("grad", "rois", SHAPE)),
    (partial(torchvision.roi_pool, return_argmax=True), ("maps", "rois", 2)),
    (torchvision.roi_pool_backward, ("grad", "cells", "rois", SHAPE)),
]


def name_of(function: Any) -> str:
    plain = getattr(function, "func", function)
    return getattr(plain, "__qualname__", type(plain).__qualname__)


every_call = pytest.mark.parametrize(
    ("function", "arguments"),
    CALLS,
    ids=[f"{number}-{name_of(function)}" for number, (function, _) in enumerate(CALLS)],
)


def on(gpu: Backend, arguments: tuple[Any, ...]) -> list[Any]:
    """Return arguments with the arrays that they name, on the device."""
    return [gpu.to_device(INPUTS[one]) if isinstance(one, str) else one for one in arguments]


def results(returned: Any) -> tuple[Any, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


@every_call
def test_same_numbers_and_nothing_read_back(
    gpu: Backend, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    expected = results(function(*(INPUTS.get(one, one) for one in arguments)))
    given = on(gpu, arguments)
    reading = emulator.cupy_module.no_reads() if gpu.name == "emulator" else nullcontext()
    with reading:
        got = results(function(*given))
    assert all(type(array) is type(given[0]) for array in got)
    for ours, theirs in zip(got, expected, strict=True):
        ours = gpu.to_host(ours)
        assert ours.dtype == theirs.dtype
        tolerance = 1e-5 if ours.dtype.kind == "f" else 0
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@every_call
def test_arrays_of_both_libraries_are_an_error(
    gpu: Backend, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    host = [INPUTS.get(one, one) for one in arguments]
    mixed = [*on(gpu, arguments[:1]), *host[1:]]
    with pytest.raises(TypeError, match=r"must all be NumPy or all be CuPy: \w+ is on the GPU"):
        function(*mixed)


def test_every_function_is_called() -> None:
    called = {name_of(function).split(".")[0] for function, _ in CALLS}
    for name in compat.__all__:
        module = getattr(compat, name)
        functions = {
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not key.startswith("_")
        }
        assert functions <= called, name


UNKNOWN = np.array([[-1, 1, 1, 4, 4], [2, 0, 0, 5, 5], [np.nan, 0, 0, 5, 5]], np.float32)


@pytest.mark.parametrize(
    "pool",
    [
        lambda maps, rois: caffe.roi_align(maps, rois, 2, 2, 1.0)[0],
        lambda maps, rois: caffe.roi_pooling(maps, rois, 2, 2, 1.0)[0],
        lambda maps, rois: maskrcnn_benchmark.roi_align(maps, rois, 2, 1.0, 2),
        lambda maps, rois: mmcv.roi_align(maps, rois, 2),
        lambda maps, rois: mmcv.roi_pool(maps, rois, 2),
        lambda maps, rois: mxnet.ROIAlign(maps, rois, (2, 2), 1.0),
        lambda maps, rois: onnx.MaxRoiPool(maps, rois, (2, 2)),
        lambda maps, rois: torchvision.roi_align(maps, rois, 2),
        lambda maps, rois: torchvision.roi_pool(maps, rois, 2),
    ],
)
def test_boxes_of_no_image_pool_to_nothing(gpu: Backend, pool: Callable[[Any, Any], Any]) -> None:
    pooled = pool(gpu.to_device(INPUTS["maps"]), gpu.to_device(UNKNOWN))
    np.testing.assert_array_equal(gpu.to_host(pooled), 0)


def test_boxes_of_no_image_have_no_gradient(gpu: Backend) -> None:
    ones, cells = np.ones((3, 3, 2, 2), np.float32), np.zeros((3, 3, 2, 2), np.int32)
    grad, rois, argmax = map(gpu.to_device, (ones, UNKNOWN, cells))
    for gradient in (
        torchvision.roi_align_backward(grad, rois, SHAPE),
        torchvision.roi_pool_backward(grad, argmax, rois, SHAPE),
        mxnet.ROIPooling_backward(grad, argmax, rois, SHAPE),
        caffe.roi_align_backward(grad, argmax, argmax, rois, SHAPE, 2, 2, 1.0),
    ):
        np.testing.assert_array_equal(gpu.to_host(gradient), 0)


def test_debugging_checks_values(gpu: Backend) -> None:
    maps, rois = gpu.to_device(INPUTS["maps"]), gpu.to_device(UNKNOWN)
    roipool.set_debug(True)
    try:
        with pytest.raises(ValueError, match=r"boxes\[0, 0\] is -1"):
            torchvision.roi_align(maps, rois, 2)
        with pytest.raises(ValueError, match="rois must be finite"):
            onnx.RoiAlign(maps, rois[:, :4], gpu.to_device(np.zeros(3, np.int64)))
        grad, boxes = gpu.to_device(GRAD), gpu.to_device(ROIS)
        far = gpu.to_device(np.full(GRAD.shape, 9, np.int32))
        with pytest.raises(ValueError, match="argmax_x and argmax_y must lie in the map"):
            caffe.roi_align_backward(grad, far, far, boxes, SHAPE, 2, 2, 1.0)
    finally:
        roipool.set_debug(False)


def test_scale_pred_is_read(gpu: Backend) -> None:
    maps, rois = gpu.to_device(INPUTS["maps"]), gpu.to_device(ROIS)
    scale = gpu.to_device(np.array([-0.5], np.float32))
    got = caffe.roi_align(maps, rois, 2, 2, 1.0, scale_pred=scale)
    expected = caffe.roi_align(INPUTS["maps"], ROIS, 2, 2, 0.5)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(gpu.to_host(ours), theirs, atol=1e-5)
