"""Position-sensitive systems of other libraries against what their releases answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import recorded

from roipool.compat import chainercv, mxnet, openvino, paddle, torchvision
from roipool.compat._openvino_pooling import PSMode


def assert_same(backend: Backend, found: Any, expected: Any, maps: Any) -> int:
    """Compare, and count the numbers that are not 0; sums may be in another order."""
    largest = float(np.abs(maps).max())
    error = np.abs(backend.to_host(found) - expected).max(initial=0)
    assert error <= 4 * np.finfo(expected.dtype).eps * largest  # another cell is a larger error
    return int(np.count_nonzero(expected))


@thorough_on_the_emulator
@pytest.mark.parametrize("mode", ["average", "bilinear"])
def test_openvino_answers_the_same(backend: Backend, mode: PSMode) -> None:
    values = 0
    for case in recorded("openvino_ps"):
        channels, group, scale, *parts = case["options"].tolist()
        maps, rois = case[f"{mode}_maps"], case["rois" if mode == "average" else "fractions"]
        options = int(channels), int(group), scale, *map(int, parts)
        arrays = backend.to_device(maps), backend.to_device(rois)
        pooled = openvino.PSROIPooling(*arrays, *options, mode)
        values += assert_same(backend, pooled, case[mode], maps)
    assert values > 500


ARRAYS = ("rois", "roi_indices")
NUMBERS = ("spatial_scale", "group_size")
CHAINERCV = tuple(
    f"ps_roi_{value}_{kind}_2d" for kind in ("pooling", "align") for value in ("average", "max")
)


@thorough_on_the_emulator
@pytest.mark.parametrize("function", CHAINERCV)
def test_chainercv_answers_the_same(backend: Backend, function: str) -> None:
    forward = getattr(chainercv, function)
    backward = getattr(chainercv, f"{function}_backward")
    values = 0
    for case in recorded("chainercv"):
        if case["function"] != function:
            continue
        boxes = [backend.to_device(case[name]) for name in ARRAYS]
        options = [case[name].item() for name in NUMBERS]
        if "sampling_ratio" in case:
            options.append(case["sampling_ratio"].tolist())
        maps, grad = backend.to_device(case["x"]), backend.to_device(case["gy"])
        size = tuple(case["outsize"].tolist())
        if "argmax" in case:
            pooled, argmax = forward(maps, *boxes, size, *options, return_argmax=True)
            np.testing.assert_array_equal(backend.to_host(argmax), case["argmax"])
            boxes = [argmax, *boxes]
            is_empty = case["argmax"] < 0
            assert np.isneginf(backend.to_host(pooled)[is_empty]).all()
            pooled = backend.to_device(np.where(is_empty, 0, backend.to_host(pooled)))
            case["pooled"] = np.where(is_empty, 0, case["pooled"])
        else:
            pooled = forward(maps, *boxes, size, *options)
        values += assert_same(backend, pooled, case["pooled"], case["x"])
        gradient = backward(grad, *boxes, case["x"].shape, *options)
        largest = 4 * np.abs(case["gradient"]).max(initial=0)
        values += assert_same(backend, gradient, case["gradient"], largest)
    assert values > 400


@thorough_on_the_emulator
def test_mxnet_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("mxnet_ps"):
        data, rois, out_grad = (
            backend.to_device(case[key]) for key in ("data", "rois", "out_grad")
        )
        scale, shape = case["spatial_scale"].item(), data.shape
        size = case["pooled_size"].tolist()
        if "group_size" in case:
            options = scale, out_grad.shape[1], size[0], case["group_size"].item()
            pooled = mxnet.contrib_PSROIPooling(data, rois, *options)
            gradient = mxnet.contrib_PSROIPooling_backward(out_grad, rois, shape, *options)
        else:
            samples = scale, case["sample_ratio"].item(), True, case["aligned"].item()
            pooled = mxnet.contrib_ROIAlign(data, rois, size, *samples)
            gradient = mxnet.contrib_ROIAlign_backward(out_grad, rois, shape, *samples)
        values += assert_same(backend, pooled, case["pooled"], case["data"])
        largest = 4 * np.abs(case["gradient"]).max(initial=0)
        values += assert_same(backend, gradient, case["gradient"], largest)
    assert values > 3500


@thorough_on_the_emulator
def test_torchvision_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("torchvision_ps"):
        maps, boxes, grad = (backend.to_device(case[key]) for key in ("input", "boxes", "grad"))
        size, scale = case["output_size"].tolist(), case["spatial_scale"].item()
        if "sampling_ratio" in case:
            options = scale, case["sampling_ratio"].item()
            pooled = torchvision.ps_roi_align(maps, boxes, size, *options)
            gradient = torchvision.ps_roi_align_backward(grad, boxes, maps.shape, *options)
        else:
            pooled = torchvision.ps_roi_pool(maps, boxes, size, scale)
            gradient = torchvision.ps_roi_pool_backward(grad, boxes, maps.shape, scale)
        values += assert_same(backend, pooled, case["pooled"], case["input"])
        largest = 4 * np.abs(case["gradient"]).max(initial=0)
        values += assert_same(backend, gradient, case["gradient"], largest)
    assert values > 1000


@thorough_on_the_emulator
def test_paddle_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("paddle_ps"):
        names = ("data", "rois", "boxes_num", "out_grad")
        maps, boxes, counts, grad = (backend.to_device(case[key]) for key in names)
        scale, size = case["spatial_scale"].item(), case["output_size"].tolist()
        pooled = paddle.psroi_pool(maps, boxes, counts, size, scale)
        gradient = paddle.psroi_pool_backward(grad, boxes, counts, maps.shape, scale)
        values += assert_same(backend, pooled, case["pooled"], case["data"])
        largest = 4 * np.abs(case["gradient"]).max(initial=0)
        values += assert_same(backend, gradient, case["gradient"], largest)
    assert values > 3500
