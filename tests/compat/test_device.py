"""The compat systems on device arrays: nothing is read back, and all arrays are on one device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.backends import Backend

import roipool
from roipool.compat import caffe, maskrcnn_benchmark, mmcv, mxnet, onnx, paddle, torchvision
from roipool.systems import SYSTEMS
from roipool.systems.case import Case, held_by
from roipool.verification.call import FunctionCall, function_of, run

SHAPE = (2, 3, 6, 7)  # too few channels for kernels that process several at once
MAPS = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
ROIS = np.array([[0, 1, 1, 4, 4], [1, 0.5, 2, 5.5, 5]], np.float32)
FOUR = np.ascontiguousarray(ROIS[:, 1:])
GRAD = np.ones((2, 3, 2, 2), np.float32)
OPTIONS: dict[str, Any] = {
    "spatial_scale": 1.0,
    "sampling_ratio": 2,
    "samples": 2,
    "gamma": 0.1,
    "group_size": 2,
    "aligned": False,
    "coordinate_transformation_mode": "half_pixel",
    "aligned_mode": "half_pixel",
    "clockwise": True,
    "extrapolation_value": 0.5,
    "input_scale": 0.5,
    "input_zero_point": 3,
    "transform_fpcoor": True,
    "num_orientations": 3,
}


def calls_of(name: str, **more: Any) -> list[FunctionCall]:
    """Return the calls of a system."""
    row = SYSTEMS[name]
    options = {**{option: OPTIONS[option] for option in row.options if option in OPTIONS}, **more}
    maps, grad = MAPS.repeat(row.groups_of(options, GRAD.shape[2:]), axis=1), GRAD
    if row.masks:
        maps, grad = maps[:, :1], grad[:, :1]
    dtype = "float32" if "float32" in row.dtypes else row.dtypes[0]
    case = held_by(Case(name, maps, grad, ROIS, options=options, layout=row.layouts[0]), dtype)
    calls: list[FunctionCall] = []
    run(case, roipool, row, calls=calls)
    return calls


def every_call() -> dict[str, FunctionCall]:
    """Return the distinct calls of all systems."""
    calls = {}
    for name, row in SYSTEMS.items():
        if "." not in name or row.pyramid or row.is_volume:
            continue
        for exact in (False, True) if "exact_gradient" in row.options else (False,):
            for call in calls_of(name, **({"exact_gradient": True} if exact else {})):
                plain = {
                    key: value
                    for key, value in call.arguments.items()
                    if value is not None and not isinstance(value, np.ndarray)
                }
                calls[f"{call.function} {plain}"] = call
    return calls


# Calls in forms that the rows lack.
OTHERS = {
    "boxes without images": FunctionCall(
        "compat.maskrcnn_benchmark.roi_align",
        {"input": MAPS, "roi": FOUR, "output_size": 2, "spatial_scale": 1.0, "sampling_ratio": 2},
        (),
    ),
    "boxes without images, backward": FunctionCall(
        "compat.maskrcnn_benchmark.roi_align_backward",
        {
            "grad_output": GRAD,
            "roi": FOUR,
            "input_shape": SHAPE,
            "spatial_scale": 1.0,
            "sampling_ratio": 2,
        },
        (),
    ),
}
CALLS = {**every_call(), **OTHERS}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))


def results(returned: Any) -> tuple[Any, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


@each_call
def test_same_numbers_and_nothing_read_back(gpu: Backend, call: FunctionCall) -> None:
    function = function_of(roipool, call.function)
    expected = results(function(**call.arguments))
    given = {
        name: gpu.to_device(value) if isinstance(value, np.ndarray) else value
        for name, value in call.arguments.items()
    }
    reading = emulator.cupy_module.no_reads() if gpu.name == "emulator" else nullcontext()
    with reading:
        got = results(function(**given))
    assert all(type(array) is type(gpu.to_device(ROIS)) for array in got)
    for ours, theirs in zip(got, expected, strict=True):
        ours = gpu.to_host(ours)
        assert ours.dtype == theirs.dtype
        tolerance = 1e-5 if ours.dtype.kind == "f" else 0
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@each_call
def test_arrays_of_both_libraries_are_an_error(gpu: Backend, call: FunctionCall) -> None:
    arrays = [name for name, value in call.arguments.items() if isinstance(value, np.ndarray)]
    mixed = {**call.arguments, arrays[0]: gpu.to_device(call.arguments[arrays[0]])}
    with pytest.raises(TypeError, match=r"must all be NumPy or all be CuPy: \w+ is on the GPU"):
        function_of(roipool, call.function)(**mixed)


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
    pooled = pool(gpu.to_device(MAPS), gpu.to_device(UNKNOWN))
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


def test_paddle_boxes_beyond_the_counts_pool_to_nothing(gpu: Backend) -> None:
    boxes = np.repeat(FOUR, 2, axis=0)  # the last two have no image
    of_image = np.array([[0, *FOUR[0]], [1, *FOUR[0]]], np.float32)
    expected, cells = torchvision.roi_pool(MAPS, of_image, 2, return_argmax=True)
    gradient = torchvision.roi_pool_backward(GRAD, cells, of_image, SHAPE)

    maps, counts = gpu.to_device(MAPS), gpu.to_device(np.array([1, 1]))
    moved, grad = gpu.to_device(boxes), gpu.to_device(np.ones((4, 3, 2, 2), np.float32))
    pooled, argmax = paddle.roi_pool(maps, moved, counts, 2, return_argmax=True)
    np.testing.assert_array_equal(gpu.to_host(pooled), [*expected, *np.zeros_like(expected)])
    actual = paddle.roi_pool_backward(grad, argmax, moved, counts, SHAPE)
    np.testing.assert_array_equal(gpu.to_host(actual), gradient)
    argmax = gpu.to_device(np.zeros(argmax.shape, np.int32))
    actual = paddle.roi_pool_backward(grad, argmax, moved, gpu.to_device(np.array([0, 0])), SHAPE)
    np.testing.assert_array_equal(gpu.to_host(actual), 0)


def test_debugging_checks_values(gpu: Backend) -> None:
    maps, rois = gpu.to_device(MAPS), gpu.to_device(UNKNOWN)
    roipool.set_debug(True)
    try:
        with pytest.raises(ValueError, match=r"boxes\[0, 0\] is -1"):
            torchvision.roi_align(maps, rois, 2)
        with pytest.raises(ValueError, match="rois must be finite"):
            onnx.RoiAlign(maps, rois[:, :4], gpu.to_device(np.zeros(3, np.int64)))
        with pytest.raises(ValueError, match="add up to the 2 boxes"):
            paddle.roi_pool(maps, gpu.to_device(FOUR), gpu.to_device(np.array([1, 2])), 2)
        grad, boxes = gpu.to_device(GRAD), gpu.to_device(ROIS)
        far = gpu.to_device(np.full(GRAD.shape, 9, np.int32))
        with pytest.raises(ValueError, match="argmax_x and argmax_y must lie in the map"):
            caffe.roi_align_backward(grad, far, far, boxes, SHAPE, 2, 2, 1.0)
    finally:
        roipool.set_debug(False)


def test_scale_pred_is_read(gpu: Backend) -> None:
    maps, rois = gpu.to_device(MAPS), gpu.to_device(ROIS)
    scale = gpu.to_device(np.array([-0.5], np.float32))
    got = caffe.roi_align(maps, rois, 2, 2, 1.0, scale_pred=scale)
    expected = caffe.roi_align(MAPS, ROIS, 2, 2, 0.5)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(gpu.to_host(ours), theirs, atol=1e-5)
