"""Maps on a GPU with another order of memory than of axes are read in place, or copied.

NCHW maps that lie in memory as NHWC are those of networks that run "channels last".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _support import cases, emulator
from _support.backends import Backend
from _support.cases import SHAPE, SIZE
from _support.compare import assert_close, assert_same_bits

import roipool
from roipool import reference
from roipool.compat import onnx, torchvision

COUNT = 5  # boxes
POOLED = (COUNT, SHAPE[1], *SIZE)
SCALES = (0.77, 0.37)
every_case = pytest.mark.parametrize("case", cases.CASES, ids=str)


def in_c_order(gpu: Backend, array: Any) -> Any:
    """Return (N, C, H, W) values on the device."""
    return gpu.to_device(np.ascontiguousarray(array))


def channels_last(gpu: Backend, array: Any) -> Any:
    """Return (N, C, H, W) values on the device with the memory order of (N, H, W, C)."""
    stored = gpu.to_device(np.ascontiguousarray(array.transpose(0, 2, 3, 1)))
    return stored.transpose(0, 3, 1, 2)


def is_channels_last(array: Any) -> bool:
    """Return whether values have this memory order."""
    if array.ndim != 4 or array.flags.c_contiguous:
        return False
    return bool(array.transpose(0, 2, 3, 1).flags.c_contiguous)


Put = Callable[[Backend, Any], Any]


def values(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Any:
    return cases.maps(shape, seed).astype(np.float32)


def results(case: cases.OperationCase, gpu: Backend, put: Put) -> Iterator[tuple[str, Any]]:
    """Yield all results of an operation for maps that `put` copies to the device."""
    boxes, indices = gpu.to_device(case.boxes(COUNT)), gpu.to_device(case.indices(COUNT))
    shape = (SHAPE[0], SHAPE[1] * case.groups, *SHAPE[2:])
    features, argmax = put(gpu, values(shape)), None
    if case.variant.has_argmax:
        pooled, argmax = case.pool(features, boxes, indices, return_argmax=True)
        yield "argmax", argmax
    else:
        pooled = case.pool(features, boxes, indices)
    yield "pooled", pooled
    gradient = put(gpu, values(pooled.shape, 1))
    yield "gradient", case.gradient(gradient, argmax, boxes, indices, shape)
    if case.moves:
        yield "gradient by boxes", case.box_gradient(gradient, features, boxes, indices)


def results_of_pyramid(gpu: Backend, put: Put) -> Iterator[tuple[str, Any]]:
    """Yield all results of a pyramid operation."""
    maps = [put(gpu, values()), put(gpu, values((*SHAPE[:2], 4, 5), 2))]
    rois = gpu.to_device(np.column_stack([np.arange(COUNT) % 2, cases.CASES[0].boxes(COUNT)]))
    options: dict[str, Any] = {"levels": gpu.to_device(np.arange(COUNT) % 2)}
    gradient, shapes = put(gpu, values(POOLED, 1)), [one.shape for one in maps]
    yield "pooled", roipool.multilevel_roi_align(maps, rois, SIZE, SCALES, 2, **options)
    actual = roipool.multilevel_roi_align_backward(gradient, rois, shapes, SCALES, 2, **options)
    yield from zip(("gradient by the first map", "gradient by the second"), actual, strict=True)
    yield (
        "gradient by boxes",
        roipool.multilevel_roi_align_backward_rois(gradient, maps, rois, SCALES, 2, **options),
    )


def assert_alike(gpu: Backend, compute: Callable[[Put], Iterator[tuple[str, Any]]]) -> None:
    """Check that results are equal for either order, and have the order of the input."""
    expected = dict(compute(in_c_order))
    for name, result in compute(channels_last):
        assert is_channels_last(result) == (result.ndim == 4), name
        assert result.shape == expected[name].shape, name
        assert result.dtype == expected[name].dtype, name
        assert expected[name].flags.c_contiguous, name
        assert_same_bits(gpu.to_host(result), gpu.to_host(expected[name]))


@every_case
def test_results_are_those_of_maps_in_c_order(gpu: Backend, case: cases.OperationCase) -> None:
    assert_alike(gpu, lambda put: results(case, gpu, put))


def test_results_of_pyramids_are_those_of_maps_in_c_order(gpu: Backend) -> None:
    assert_alike(gpu, lambda put: results_of_pyramid(gpu, put))


def test_results_are_the_oracles(gpu: Backend) -> None:
    maps, boxes = values(), cases.CASES[0].boxes(COUNT)
    rois = np.column_stack([np.arange(COUNT) % 2, boxes]).astype(np.float32)
    features, table = channels_last(gpu, maps), gpu.to_device(rois)
    place = (SIZE, 0.77, 2)
    exact = {"coordinate_dtype": np.float32}
    pooled = roipool.roi_align(features, table, *place)
    expected = reference.roi_align(maps, rois, *place, **exact)
    terms = reference.roi_align(np.abs(maps).astype(np.float64), rois, *place, **exact)
    assert_close(gpu.to_host(pooled), expected, terms)
    actual = roipool.roi_pool(features, table, SIZE, 0.77, return_argmax=True)
    answer = reference.roi_pool(maps, rois, SIZE, 0.77, return_argmax=True, **exact)
    for got, right in zip(actual, answer, strict=True):
        np.testing.assert_array_equal(gpu.to_host(got), right)
    upstream = values(POOLED, 1)
    gradient = roipool.roi_pool_backward(channels_last(gpu, upstream), actual[1], table, SHAPE)
    right = reference.roi_pool_backward(upstream, answer[1], rois, SHAPE)
    assert_close(gpu.to_host(gradient), right, np.abs(right))


COPIES = {"ascontiguousarray", "copy", "setitem", "astype"}


def test_no_map_is_copied() -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as cupy:
        gpu = Backend("emulator")
        for case in cases.CASES:
            cupy.launches.clear()
            assert dict(results(case, gpu, channels_last))
            copied = COPIES & set(cupy.launches)
            # Boxes in float64 are converted; crops' coordinates change places, and the gradient of
            # offsets is cut out of that of the boxes.
            of_boxes = {"ascontiguousarray", "copy"} if case.op.is_deformable else set()
            assert copied <= {"astype", *of_boxes}, case
        cupy.launches.clear()
        assert dict(results_of_pyramid(gpu, channels_last))
        assert not COPIES - {"astype"} & set(cupy.launches)


def pooled_of(gpu: Backend, features: Any, **options: Any) -> Any:
    rois = gpu.to_device(np.array([[0, 1, 2, 5.5, 6], [1, 0.5, 0, 7, 3]], np.float32))
    return roipool.roi_align(features, rois, SIZE, 0.77, **options)


def test_out_of_either_order_is_filled(gpu: Backend) -> None:
    expected = gpu.to_host(pooled_of(gpu, in_c_order(gpu, values())))
    for put in (in_c_order, channels_last):
        for put_out in (in_c_order, channels_last):
            out = put_out(gpu, np.zeros(expected.shape, np.float32))
            strides = out.strides
            assert pooled_of(gpu, put(gpu, values()), out=out) is out
            assert out.strides == strides
            assert_same_bits(gpu.to_host(out), expected)
    wrong = gpu.to_device(np.zeros((2, *SIZE, SHAPE[1]), np.float32))
    with pytest.raises(ValueError, match=r"out must have shape \(2, 3, 2, 3\), got \(2, 2, 3, 3\)"):
        pooled_of(gpu, channels_last(gpu, values()), out=wrong)


def test_orders_of_several_arrays_may_differ(gpu: Backend) -> None:
    """The maps or, without maps, the gradient determine the order; other arrays are copied."""
    maps, upstream = values(), values(POOLED, 1)
    rois = gpu.to_device(np.column_stack([np.arange(COUNT) % 2, cases.CASES[0].boxes(COUNT)]))
    by_boxes, by_argmax = [], []
    for first in (in_c_order, channels_last):
        for second in (in_c_order, channels_last):
            features, gradient = first(gpu, maps), second(gpu, upstream)
            slopes = roipool.roi_align_backward_rois(gradient, features, rois, 0.77, 2)
            by_boxes.append(gpu.to_host(slopes))
            for mode in ("cells", "samples"):
                if mode == "cells":
                    _, argmax = roipool.roi_pool(features, rois, SIZE, 0.77, return_argmax=True)
                    actual = roipool.roi_pool_backward(gradient, argmax, rois, SHAPE)
                else:
                    options: dict[str, Any] = {"mode": "max"}
                    _, argmax = roipool.roi_align(
                        features, rois, SIZE, 0.77, 2, return_argmax=True, **options
                    )
                    actual = roipool.roi_align_backward(
                        gradient, rois, SHAPE, 0.77, 2, argmax=argmax, **options
                    )
                assert is_channels_last(argmax) == (first is channels_last)
                assert is_channels_last(actual) == (second is channels_last)
                by_argmax.append(gpu.to_host(actual))
    for slopes in by_boxes:
        assert_same_bits(slopes, by_boxes[0])
    for number, gradients in enumerate(by_argmax):
        assert_same_bits(gradients, by_argmax[number % 2])
    mixed = [in_c_order(gpu, maps), channels_last(gpu, maps)]
    levels = gpu.to_device(np.arange(COUNT) % 2)
    pooled = roipool.multilevel_roi_align(mixed, rois, SIZE, SCALES, 2, levels=levels)
    assert pooled.flags.c_contiguous


def test_other_orders_are_copied_and_sizes_of_one_are_in_either(gpu: Backend) -> None:
    expected = gpu.to_host(pooled_of(gpu, in_c_order(gpu, values())))
    by_columns = gpu.to_device(np.ascontiguousarray(values().transpose(3, 2, 1, 0)))
    for features in (
        by_columns.transpose(3, 2, 1, 0),
        gpu.to_device(np.repeat(values(), 2, axis=3))[..., ::2],
        channels_last(gpu, np.repeat(values(), 2, axis=1))[:, ::2],
    ):
        pooled = pooled_of(gpu, features)
        assert pooled.flags.c_contiguous
        assert_same_bits(gpu.to_host(pooled), expected)
    one_channel = channels_last(gpu, values((2, 1, 8, 9)))
    assert pooled_of(gpu, one_channel).flags.c_contiguous
    no_cells = channels_last(gpu, values((2, 3, 0, 9)))
    assert not np.any(gpu.to_host(pooled_of(gpu, no_cells)))
    last = gpu.to_device(np.ascontiguousarray(values().transpose(0, 2, 3, 1)))
    backwards = channels_last(gpu, last.get() if gpu.is_gpu else last)  # NHWC, in another order
    got = pooled_of(gpu, backwards, layout="NHWC")
    assert got.flags.c_contiguous
    assert_same_bits(gpu.to_host(got), expected.transpose(0, 2, 3, 1))


def test_functions_of_compat_do_the_same(gpu: Backend) -> None:
    rois = np.array([[0, 1, 2, 5.5, 6], [1, 0.5, 0, 7, 3]], np.float32)
    table, upstream = gpu.to_device(rois), values((2, SHAPE[1], *SIZE), 1)
    boxes, images = table[:, 1:], gpu.to_device(np.array([0, 1]))
    for mode in ("avg", "max"):
        options: dict[str, Any] = {"mode": mode, "output_height": 2, "output_width": 3}
        pooled, gradients = [], []
        for put, put_gradient in (
            (in_c_order, in_c_order),
            (channels_last, channels_last),
            (channels_last, in_c_order),
        ):
            features = put(gpu, values())
            pooled.append(onnx.RoiAlign(features, boxes, images, **options))
            grad = put_gradient(gpu, upstream)
            gradients.append(onnx.RoiAlign_backward(grad, features, boxes, images, mode=mode))
        assert [is_channels_last(each) for each in pooled] == [False, True, True]
        assert [is_channels_last(each) for each in gradients] == [False, True, False]
        for actual in (pooled, gradients):
            for each in actual:
                assert_same_bits(gpu.to_host(each), gpu.to_host(actual[0]))
    first, last = (
        torchvision.roi_align(put(gpu, values()), table, SIZE, 0.77)
        for put in (in_c_order, channels_last)
    )
    assert is_channels_last(last)
    assert_same_bits(gpu.to_host(last), gpu.to_host(first))


def test_errors_name_the_shapes_that_were_given(gpu: Backend) -> None:
    gradient = channels_last(gpu, values((2, 3, 2, 2)))
    rois = gpu.to_device(np.array([[0, 1, 2, 5, 6]], np.float32))
    with pytest.raises(ValueError, match=r"\(K, C, PH, PW\) with K=1 and C=3, got \(2, 3, 2, 2\)"):
        roipool.roi_align_backward(gradient, rois, SHAPE)
    argmax = gpu.to_device(np.zeros((1, 2, 2, 3), np.int32))
    with pytest.raises(ValueError, match=r"grad_output's shape \(1, 3, 2, 2\), got \(1, 2, 2, 3\)"):
        roipool.roi_pool_backward(gradient[:1], argmax, rois, SHAPE)
