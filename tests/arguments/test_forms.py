"""All forms of boxes, arrays, numbers and `out` give the same results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.catalogue import DTYPES, Array
from _support.compare import assert_same_bits
from _support.forms import FORMS
from _support.loops import each
from _support.valid_calls import (
    ARGMAX,
    CALLS,
    FEATURES,
    GRAD,
    IMAGES,
    ROIS,
    SAMPLES,
    arrays_of,
    assert_same_arrays,
    changed,
    filled_out,
)

import roipool
from roipool._definitions import OPS

nan, inf = float("nan"), float("inf")

# ---- Every form of boxes


@pytest.mark.parametrize("name", [name for name, (_, call) in CALLS.items() if "rois" in call])
def test_forms_of_rois(name: str) -> None:
    function, arguments = CALLS[name]
    # Sorted by image, as required for one array per image.
    order = np.argsort(IMAGES, kind="stable")
    rois = arguments["rois"][order]
    arguments = dict(arguments)
    for per_box in ("grad_output", "argmax", "levels"):
        if per_box in arguments:
            arguments[per_box] = arguments[per_box][order]
    expected = function(**{**arguments, "rois": rois})
    parts = [rois[rois[:, 0] == image, 1:] for image in range(2)]
    forms: list[dict[str, Any]] = [
        {"rois": rois.tolist()},
        {"rois": tuple(map(tuple, rois))},
        {"rois": list(rois)},
        {"rois": rois[:, 1:], "batch_indices": rois[:, 0].astype(np.int32)},
        {"rois": rois[:, 1:], "batch_indices": rois[:, 0]},
        {"rois": rois[:, 1:].tolist(), "batch_indices": [0, 0, 1]},
        {"rois": parts},
        {"rois": tuple(parts)},
        {"rois": [part.tolist() for part in parts]},
    ]
    for form in forms:
        assert_same_arrays(function(**{**arguments, **form}), expected)


@pytest.mark.parametrize(
    "rois",
    [
        [],
        (),
        np.zeros((0, 5)),
        np.zeros(0),
        [np.zeros((0, 4))] * 2,
        [[], []],
        ([], np.zeros((0, 4))),
    ],
    ids=["[]", "()", "(0, 5)", "(0,)", "two (0, 4)", "[[], []]", "[] and (0, 4)"],
)
def test_no_boxes(rois: Any) -> None:
    assert roipool.roi_pool(FEATURES, rois, (2, 3)).shape == (0, 3, 2, 3)
    assert roipool.roi_align(FEATURES, rois, (2, 3)).shape == (0, 3, 2, 3)
    grad = roipool.roi_align_backward(np.zeros((0, 3, 2, 2)), rois, FEATURES.shape)
    np.testing.assert_array_equal(grad, np.zeros(FEATURES.shape))
    assert roipool.roi_align_backward_rois(GRAD[:0], FEATURES, rois).shape == (0, 4)


def test_no_boxes_for_one_image() -> None:
    expected = roipool.roi_align(FEATURES, ROIS[[1]], 2)
    for empty in ([], np.zeros((0, 4))):
        assert_same_bits(roipool.roi_align(FEATURES, [empty, ROIS[[1], 1:]], 2), expected)


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "uint16", "float16", "float32", "longdouble", ">f8", "bfloat16"]
)
def test_dtypes_of_boxes(dtype: str) -> None:
    whole = np.array([[0, 1, 0, 5, 4], [1, 2, 1, 3, 6]])
    boxes = whole.astype(DTYPES.get(dtype, dtype))
    for op in (roipool.roi_pool, roipool.roi_align):
        expected = op(FEATURES, whole.astype(np.float64), 2)
        assert_same_bits(op(FEATURES, boxes, 2), expected)
        assert_same_bits(op(FEATURES, boxes[:, 1:], 2, batch_indices=boxes[:, 0]), expected)
    corners, images = boxes[:, 1:], boxes[:, 0]
    assert_same_bits(
        roipool.crop_and_resize(FEATURES, corners, images, 2),
        roipool.crop_and_resize(FEATURES, corners.astype(np.float64), images.astype(int), 2),
    )


def test_boxes_of_half_maps_keep_float32() -> None:
    # 1000.3 is 1000.5 in float16 and 1000 in bfloat16.
    maps = np.zeros((1, 1, 1, 2000), np.float32)
    maps[..., 1000] = 1
    roi = [[0, 1000.3, 0, 1001.3, 1]]
    expected = roipool.roi_align(maps, roi, 1, sampling_ratio=1)
    for dtype in ("float16", "bfloat16"):
        got = roipool.roi_align(maps.astype(DTYPES[dtype]), roi, 1, sampling_ratio=1)
        assert_same_bits(got, expected.astype(DTYPES[dtype]))


# ---- Every form of arrays


def in_dtype(arguments: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return arguments with maps and gradients of a type."""
    maps = {"features", "grad_output"} & set(arguments)
    return arguments | {
        key: changed(arguments[key], lambda array: array.astype(DTYPES[dtype])) for key in maps
    }


def placed(memory: Array, first: int, array: Array) -> Array:
    """Copy an array into a part of `memory`; return the view of it."""
    view = memory[first : first + array.size].reshape(array.shape)
    view[...] = array
    return view


@each(form=list(FORMS), dtype=list(DTYPES))
@pytest.mark.parametrize("name", CALLS)
def test_forms_of_arrays(name: str, dtype: str, form: str) -> None:
    function, arguments = CALLS[name]
    plain = in_dtype(arguments, dtype)
    expected = function(**plain)
    other = {key: changed(value, FORMS[form]) for key, value in plain.items()}
    before = {key: changed(value, np.copy) for key, value in other.items()}
    result = function(**other)
    for got in arrays_of(result):
        assert type(got) is np.ndarray
        assert got.flags.c_contiguous
        assert got.dtype.isnative
    assert_same_arrays(result, expected)
    for key, value in other.items():
        for now, then in zip(arrays_of(value), arrays_of(before[key]), strict=True):
            np.testing.assert_array_equal(now.view(np.ndarray), then.view(np.ndarray))


@each(form=[form for form in FORMS if form not in ("read-only", "subclass")], dtype=list(DTYPES))
@pytest.mark.parametrize(
    "name", [name for name, call in CALLS.items() if filled_out(*call) is not None]
)
def test_forms_of_out(name: str, dtype: str, form: str) -> None:
    function, arguments = CALLS[name]
    arguments = in_dtype(arguments, dtype)
    expected = function(**arguments)
    out = FORMS[form](np.full(expected.shape, 7, expected.dtype))
    assert function(**arguments, out=out) is out
    assert_same_bits(out.astype(expected.dtype), expected)
    assert_same_bits(function(**arguments), expected)


def test_gaps_of_out_are_left_alone() -> None:
    wide = np.full((3, 3, 2, 4), 7, np.float32)
    roipool.roi_align(FEATURES, ROIS, 2, out=wide[..., ::2])
    np.testing.assert_array_equal(wide[..., 1::2], 7)


@each(shift=[0, 5, 40])
@pytest.mark.parametrize("name", [name for name in CALLS if name.split()[0] in OPS])
def test_out_may_overlap_the_features(name: str, shift: int) -> None:
    function, arguments = CALLS[name]
    arguments = {**arguments, OPS[name.split()[0]].size: (5, 6)}
    for per_bin in {"offsets", "mask"} & arguments.keys():
        count, channels, *_ = arguments[per_bin].shape
        arguments[per_bin] = np.ones((count, channels, 5, 6), np.float32)
    expected = function(**arguments)
    memory = np.zeros(FEATURES.size + expected.size + shift, np.float32)
    features = placed(memory, 0, FEATURES)
    out = memory[shift : shift + expected.size].reshape(expected.shape)
    assert_same_bits(function(**{**arguments, "features": features}, out=out), expected)


@each(shift=[0, 5, 20])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (function, call) in CALLS.items()
        if name.split()[0].endswith("_backward") and "input_shape" in call
    ],
)
def test_out_may_overlap_the_gradient(name: str, shift: int) -> None:
    function, arguments = CALLS[name]
    expected = function(**arguments)
    given = arguments["grad_output"]
    memory = np.zeros(expected.size + given.size, np.float32)
    grad = placed(memory, shift, given)
    out = memory[: expected.size].reshape(expected.shape)
    assert_same_bits(function(**{**arguments, "grad_output": grad}, out=out), expected)


def test_out_may_overlap_boxes_and_argmax() -> None:
    expected = roipool.roi_align(FEATURES, ROIS.astype(np.float32), 2)
    memory = np.zeros(expected.size, np.float32)
    rois = placed(memory, 0, ROIS)
    out = memory.reshape(expected.shape)
    assert_same_bits(roipool.roi_align(FEATURES, rois, 2, out=out), expected)

    expected = roipool.roi_pool_backward(GRAD, ARGMAX, ROIS, FEATURES.shape)
    memory = np.zeros(expected.size, np.float32)
    argmax = placed(memory.view(np.int32), memory.size - ARGMAX.size, ARGMAX)
    out = memory.reshape(expected.shape)
    assert_same_bits(
        roipool.roi_pool_backward(GRAD, argmax, ROIS, FEATURES.shape, out=out), expected
    )


# ---- Forms of the other arguments


def test_forms_of_sizes_and_numbers() -> None:
    expected = roipool.roi_align(FEATURES, ROIS, (2, 2), 0.5, (3, 3), aligned=True)
    for size in (2, np.int8(2), [2, 2], (np.uint64(2), 2)):
        for scale in (0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5), np.array(0.5)):
            got = roipool.roi_align(FEATURES, ROIS, size, scale, 3, aligned=np.True_)
            assert_same_bits(got, expected)
    assert_same_bits(roipool.roi_align(FEATURES, ROIS, 2, 0.5, [np.int16(3), 3]), expected)
    one = roipool.roi_align(FEATURES, ROIS, 2)
    assert_same_bits(roipool.roi_align(FEATURES, ROIS, 2, 1), one)
    assert_same_bits(roipool.roi_align(FEATURES, ROIS, 2, spatial_scale=np.int32(1)), one)
    shape = np.array(FEATURES.shape)
    expected = roipool.roi_align_backward(GRAD, ROIS, FEATURES.shape)
    assert_same_bits(roipool.roi_align_backward(GRAD, ROIS, shape), expected)
    assert_same_bits(roipool.roi_align_backward(GRAD, ROIS, list(shape)), expected)


@pytest.mark.parametrize("value", [0, 1.5, -inf, nan, np.float32(2), np.array(3.0)])
def test_forms_of_extrapolation_value(value: Any) -> None:
    crop = roipool.crop_and_resize(
        FEATURES, [[3.0, 3.0, 4.0, 4.0]], [0], 2, extrapolation_value=value
    )
    np.testing.assert_array_equal(crop, np.full(crop.shape, float(value)))


def test_a_bins_last_sample_is_its_number_of_samples_less_one() -> None:
    call, arguments = CALLS["roi_align_backward max"]
    for last, allowed in ((7, True), (8, False)):
        argmax = np.full_like(SAMPLES, -1)
        argmax[0, 0, 1, 1] = last
        given = {**arguments, "sampling_ratio": (2, 4), "argmax": argmax}
        if allowed:
            assert call(**given).any()
        else:
            with pytest.raises(ValueError, match="argmax"):
                call(**given)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.uint64, np.int16])
def test_argmax_of_any_integer_type(kind: type) -> None:
    argmax = np.maximum(ARGMAX, 0).astype(kind)
    expected = roipool.roi_pool_backward(GRAD, np.maximum(ARGMAX, 0), ROIS, FEATURES.shape)
    got = roipool.roi_pool_backward(GRAD, argmax, ROIS, FEATURES.shape)
    assert_same_bits(got, expected)


@pytest.mark.parametrize("function", dict.fromkeys(function for function, _ in CALLS.values()))
def test_options_are_keywords(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert all(
        parameter.kind is parameter.KEYWORD_ONLY
        for parameter in parameters
        if parameter.name in ("batch_indices", "layout", "out", "aligned", "mode", "method")
    )
