"""Calls whose options were checked by an earlier one give the same results and errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from _support.forms import FORMS

import roipool
from roipool._kept import observed

SEED = 20261126
BOXES, CHANNELS, HEIGHT, WIDTH = 5, 3, 9, 11
OPTIONS: dict[str, dict[str, Any]] = {
    "roi_align": {"sampling_ratio": 2, "aligned": False},
    "precise_roi_pool": {},
    "roi_average_pool": {},
}
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
each_operation = pytest.mark.parametrize("name", OPTIONS)


def arrays(dtype: str, layout: str = "NCHW") -> Arrays:
    """Return maps, a gradient of 2 x 3 bins, and boxes."""
    rng = np.random.default_rng(SEED)
    maps = rng.normal(size=(2, CHANNELS, HEIGHT, WIDTH))
    grad = rng.normal(size=(BOXES, CHANNELS, 2, 3))
    if layout == "NHWC":
        maps, grad = (np.ascontiguousarray(np.moveaxis(each, 1, -1)) for each in (maps, grad))
    corners = np.sort(rng.uniform(-2, 12, (BOXES, 2, 2)), axis=1).reshape(BOXES, 4)
    rois = np.column_stack([rng.integers(0, 2, BOXES), corners])
    real = "float64" if dtype == "float64" else "float32"
    return maps.astype(dtype), grad.astype(dtype), rois.astype(real)


def is_same(one: np.ndarray, other: np.ndarray) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@each_operation
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_second_call_gives_the_same_bits(name: str, dtype: str, layout: str) -> None:
    maps, grad, rois = arrays(dtype, layout)
    forward, backward = getattr(roipool, name), getattr(roipool, f"{name}_backward")
    options = {"spatial_scale": 0.75, "layout": layout, **OPTIONS[name]}
    with observed():
        expected = forward(maps, rois, (2, 3), **options)
    assert is_same(forward(maps, rois, (2, 3), **options), expected)
    assert is_same(forward(maps, rois, (2, 3), **options), expected)
    assert is_same(forward(maps, rois, [2, 3], **options), expected)  # a list is not kept
    gradient = backward(grad, rois, maps.shape, **options)
    assert is_same(backward(grad, rois, maps.shape, **options), gradient)
    assert is_same(backward(grad, rois, [*maps.shape], **options), gradient)


# A call of each kind that is kept: an average and its gradient, maxima with and without an argmax,
# and functions of frameworks, which cut batch indices.
KEPT: dict[str, tuple[Any, ...]] = {
    "precise_roi_pool": ((2, 3), 0.5),
    "precise_roi_pool_backward": ((2, CHANNELS, HEIGHT, WIDTH), 0.5),
    "roi_align": (2, 0.5, 2),
    "roi_pool": (2, 0.5),
    "compat.torchvision.roi_align": (2, 0.5, 2),
    "compat.torchvision.roi_pool": (2, 0.5),
    "compat.mmcv.roi_align": (2, 0.5, 2, "max"),
    "compat.caffe.roi_pooling": (2, 2, 0.5),
}
# And some that are not: their results are not the engine's own, or the boxes not the caller's.
NOT_KEPT: dict[str, tuple[Any, ...]] = {
    "compat.torchvision.ps_roi_align": (1, 0.5),
    "compat.maskrcnn_benchmark.roi_align": (2, 0.5, 2),
}


def function_of(name: str) -> Any:
    function: Any = roipool
    for part in name.split("."):
        function = getattr(function, part)
    return function


@pytest.mark.parametrize("name", KEPT)
def test_options_are_kept(name: str) -> None:
    maps, grad, rois = arrays("float32")
    function, options = function_of(name), KEPT[name]
    given = (grad if name.endswith("_backward") else maps, rois, *options)
    expected = function(*given)
    again = function.kept.result(given, {})
    for one, other in zip(
        *(x if isinstance(x, tuple) else (x,) for x in (expected, again)), strict=True
    ):
        assert is_same(one, other)
    assert function.kept.result((*given, "another option"), {}) is None


# Calls with boxes in other forms, and options: maps and boxes from (N, C, H, W) and rows of a batch
# index and a box.
FORMS_OF_BOXES: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "roi_align": lambda maps, rois: (maps, tables_of(rois), 2, 0.5),
    "roi_pool": lambda maps, rois: (maps, tables_of(rois), 2, 0.5),
    "compat.torchvision.roi_align": lambda maps, rois: (maps, tables_of(rois), 2, 0.5, 2),
    "precise_roi_pool_backward": lambda maps, rois: (
        np.ones((len(rois), CHANNELS, 2, 2), maps.dtype),
        tables_of(rois),
        maps.shape,
    ),
    "crop_and_resize": lambda maps, rois: (maps, fractions(rois), rois[:, 0].astype(np.int32), 2),
    "compat.roialign_pytorch.crop_and_resize": lambda maps, rois: (
        maps,
        fractions(rois),
        rois[:, 0].astype(np.int64),
        2,
        3,
    ),
    "compat.tensorflow.crop_and_resize": lambda maps, rois: (
        maps.transpose(0, 2, 3, 1).copy(),
        fractions(rois),
        rois[:, 0].astype(np.int64),
        (2, 3),
    ),
}


def tables_of(rois: np.ndarray) -> list[np.ndarray]:
    return [rois[rois[:, 0] == image, 1:].copy() for image in (0, 1)]


def fractions(rois: np.ndarray) -> np.ndarray:
    return rois[:, 1:] / rois.dtype.type(8)


def refused(function: Any, given: tuple[Any, ...], options: dict[str, Any]) -> bool:
    return function.kept.result(given, options) is None


@pytest.mark.parametrize("name", FORMS_OF_BOXES)
def test_boxes_of_every_form_are_kept(name: str) -> None:
    maps, _, rois = arrays("float32")
    function, call = function_of(name), FORMS_OF_BOXES[name]
    function(*call(maps, rois))
    given = call(maps[:, :, ::-1].copy(), rois[::-1].copy())
    with observed():
        expected = function(*given)
    assert is_same(function.kept.result(given, {}), expected)
    wider = call(maps.astype(np.float64), rois.astype(np.float64))
    with observed():
        expected = function(*wider)
    assert is_same(function(*wider), expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_indices_beside_boxes_are_kept(dtype: Any) -> None:
    maps, grad, rois = arrays("float32")
    boxes, indices = rois[:, 1:].copy(), rois[:, 0].astype(dtype)
    for name, array, option in (
        ("roi_align", maps, (2, 3)),
        ("roi_align_backward", grad, maps.shape),
    ):
        function, given = function_of(name), (array, boxes, option)
        expected = function(array, rois, option)
        assert is_same(function(*given, batch_indices=indices), expected)
        assert is_same(function.kept.result(given, {"batch_indices": indices}), expected)
        for wrong in (indices[1:], indices + dtype(2), indices[:, None], indices.astype(np.uint8)):
            assert refused(function, given, {"batch_indices": wrong})
        assert refused(function, (array, rois, option), {"batch_indices": indices})
        assert refused(function, given, {"out": indices})
        with pytest.raises(ValueError, match=r"batch_indices\[0\] is"):
            function(*given, batch_indices=indices - dtype(3))


def test_tables_of_each_image_are_checked() -> None:
    maps, _, rois = arrays("float32")
    first, second = tables_of(rois)
    roipool.roi_align(maps, [first, second], 2)
    kept = roipool.roi_align.kept  # type: ignore[attr-defined]
    for wrong in ([first], [first, second, first], [first, rois], [first, second.tolist()]):
        assert kept.result((maps, wrong, 2), {}) is None
    mmcv = roipool.compat.mmcv.roi_align
    mmcv(maps, rois, 2)
    for _ in range(2):
        with pytest.raises(ValueError, match="one array per image: got 1 for 2"):
            roipool.roi_align(maps, [first], 2)
        with pytest.raises((TypeError, ValueError), match="rois"):
            mmcv(maps, [first, second], 2)


@pytest.mark.parametrize("name", ["crop_and_resize", "compat.tensorflow.crop_and_resize"])
def test_unusual_crops_are_not_kept(name: str) -> None:
    maps, _, rois = arrays("float32")
    function, (given, boxes, *others) = function_of(name), FORMS_OF_BOXES[name](maps, rois)
    function(given, boxes, *others)
    not_finite = boxes.copy()
    not_finite[2, 1] = np.nan
    assert refused(function, (given, not_finite, *others), {})
    with pytest.warns(UserWarning, match="must be fractions"):
        function(given, np.abs(boxes) * 1000 + 11, *others)


def test_results_that_are_not_the_engine_s_are_not_kept() -> None:
    maps, _, rois = arrays("float32")
    for name, options in NOT_KEPT.items():
        function = function_of(name)
        function(maps, rois, *options)
        assert function.kept.result((maps, rois, *options), {}) is None


def test_a_fraction_of_an_index_is_cut_where_the_framework_cuts_it() -> None:
    maps, _, rois = arrays("float32")
    rois[:, 0] = [0.75, 1.5, 0, 1, 0.25]
    whole = np.column_stack([np.trunc(rois[:, 0]), rois[:, 1:]]).astype(np.float32)
    for _ in range(2):
        pooled = roipool.compat.torchvision.roi_align(maps, rois, 2, 0.5, 2)
        assert is_same(pooled, roipool.roi_align(maps, whole, 2, 0.5, 2, aligned=False))
        with pytest.raises(ValueError, match=r"rois\[0, 0\] is 0.75"):
            roipool.roi_align(maps, rois, 2, 0.5, 2, aligned=False)


LOOKALIKES: list[dict[str, Any]] = [
    {"output_size": 1.0},
    {"output_size": True},
    {"output_size": (1, True)},
    {"output_size": (1.0, 1)},
    {"sampling_ratio": 1.0},
    {"sampling_ratio": (1, True)},
    {"spatial_scale": True},
    {"aligned": 1},
    {"return_argmax": 0},
]


@pytest.mark.parametrize("wrong", LOOKALIKES, ids=str)
def test_equal_options_of_another_type_are_checked(wrong: dict[str, Any]) -> None:
    maps, _, rois = arrays("float32")
    right: dict[str, Any] = {"sampling_ratio": 1, "spatial_scale": 1, "aligned": True}
    right |= {"output_size": 1, "return_argmax": False}
    for name, value in wrong.items():
        if isinstance(value, tuple):
            right[name] = (1, 1)
    for positional in ((), ("output_size", "spatial_scale", "sampling_ratio")):

        def pooled(options: dict[str, Any], positional: tuple[str, ...] = positional) -> Any:
            named = dict(options)
            return roipool.roi_align(maps, rois, *map(named.pop, positional), **named)

        for _ in range(2):
            pooled(right)
            with pytest.raises(TypeError, match=next(iter(wrong))):
                pooled(right | wrong)


@each_operation
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_every_kind_give_the_same_results(name: str, form: str) -> None:
    maps, grad, rois = arrays("float32")
    forward, backward = getattr(roipool, name), getattr(roipool, f"{name}_backward")
    pooled, gradient = forward(maps, rois, (2, 3)), backward(grad, rois, maps.shape)
    change = FORMS[form]
    assert np.array_equal(forward(change(maps), rois, (2, 3)), pooled)
    assert np.array_equal(forward(maps, change(rois), (2, 3)), pooled)
    assert np.array_equal(backward(change(grad), rois, maps.shape), gradient)
    assert np.array_equal(backward(grad, change(rois), maps.shape), gradient)


@each_operation
def test_boxes_in_another_form_give_the_same_results(name: str) -> None:
    maps, _, rois = arrays("float32")
    forward = getattr(roipool, name)
    pooled = forward(maps, rois, (2, 3))
    for form in (rois.tolist(), rois.astype(np.float64)):
        assert np.array_equal(forward(maps, form, (2, 3)), pooled)
    indices = rois[:, 0].astype(np.int64)
    assert np.array_equal(forward(maps, rois[:, 1:].copy(), (2, 3), batch_indices=indices), pooled)
    out = np.zeros_like(pooled)
    assert forward(maps, rois, (2, 3), out=out) is out
    assert np.array_equal(out, pooled)


@each_operation
@pytest.mark.parametrize("index", [2, -1, 0.5, np.nan, np.inf, 1e30])
def test_batch_indices_are_checked(name: str, index: float) -> None:
    maps, grad, rois = arrays("float32")
    forward, backward = getattr(roipool, name), getattr(roipool, f"{name}_backward")
    wrong = rois.copy()
    wrong[3, 0] = index
    for _ in range(2):
        forward(maps, rois, (2, 3))
        backward(grad, rois, maps.shape)
        with pytest.raises(ValueError, match=r"rois\[3, 0\] is"):
            forward(maps, wrong, (2, 3))
        with pytest.raises(ValueError, match=r"rois\[3, 0\] is"):
            backward(grad, wrong, maps.shape)


@each_operation
def test_shapes_are_checked(name: str) -> None:
    maps, grad, rois = arrays("float32")
    forward, backward = getattr(roipool, name), getattr(roipool, f"{name}_backward")
    forward(maps, rois, (2, 3))
    backward(grad, rois, maps.shape)
    for wrong in (rois[:, :4].copy(), rois[0].copy(), rois[None].copy()):
        with pytest.raises(ValueError, match="rois"):
            forward(maps, wrong, (2, 3))
    with pytest.raises(ValueError, match="features must have 4 dimensions"):
        forward(maps[0], rois, (2, 3))
    with pytest.raises(TypeError, match="features must have dtype"):
        forward(maps.astype(np.int32), rois, (2, 3))
    for wrong in (grad[1:], grad[:, 1:].copy(), np.zeros((BOXES, CHANNELS, 0, 3), np.float32)):
        with pytest.raises(ValueError, match="grad_output must have"):
            backward(wrong, rois, maps.shape)
    assert forward(maps, rois[:0], (2, 3)).shape == (0, CHANNELS, 2, 3)
    assert forward(maps[:, :0], rois, (2, 3)).shape == (BOXES, 0, 2, 3)
    assert not backward(grad[:0], rois[:0], maps.shape).any()
    for shape in ((2, CHANNELS, 0, WIDTH), (2, CHANNELS, HEIGHT, 0)):
        for _ in range(2):
            assert backward(grad, rois, shape).shape == shape
    for _ in range(2):
        with pytest.raises(ValueError, match=r"rois\[0, 0\] is"):
            backward(grad, rois, (0, CHANNELS, HEIGHT, WIDTH))


def test_gradients_of_other_bins_share_their_options() -> None:
    maps, _, rois = arrays("float32")
    for bins in ((2, 3), (4, 1), (2, 3)):
        grad = np.ones((BOXES, CHANNELS, *bins), np.float32)
        gradient = roipool.precise_roi_pool_backward(grad, rois, maps.shape)
        again = roipool.precise_roi_pool_backward(grad, rois, [*maps.shape])
        assert is_same(gradient, again)


def test_an_array_is_a_pair() -> None:
    """As TensorFlow and torchvision take sizes; it may change between calls."""
    maps, _, rois = arrays("float32")
    size = np.array([3, 2], np.int32)
    for rows in (3, 4, 3):
        size[0] = rows
        given = roipool.roi_align(maps, rois, size, sampling_ratio=np.array([1, 2]))
        assert is_same(given, roipool.roi_align(maps, rois, (rows, 2), sampling_ratio=(1, 2)))
    for wrong in (np.array([3.0, 2]), np.array([3, 2, 1]), np.array([[3, 2]])):
        with pytest.raises((TypeError, ValueError), match="output_size must be an int or a pair"):
            roipool.roi_align(maps, rois, wrong)


def test_equal_scales_are_one() -> None:
    """A pair of equal scales is kept as one number is, and has its bits."""
    maps, _, rois = arrays("float32")
    expected = roipool.roi_align(maps, rois, 2, 0.3)
    for pair in ((0.3, 0.3), np.full(2, 0.3)):
        assert is_same(roipool.roi_align(maps, rois, 2, pair), expected)
    again = roipool.roi_align.kept.result((maps, rois, 2, (0.3, 0.3)), {})  # type: ignore[attr-defined]
    assert is_same(again, expected)
    roipool.roi_align(maps, rois, 2, (0.3, 0.2))
    assert roipool.roi_align.kept.result((maps, rois, 2, (0.3, 0.2)), {}) is None  # type: ignore[attr-defined]


def test_many_options_in_many_threads() -> None:
    maps, _, rois = arrays("float32")
    sizes = [(rows, columns) for rows in range(1, 20) for columns in range(1, 20)]
    expected = {size: roipool.roi_align(maps, rois, [*size]) for size in sizes}

    def pool(start: int) -> bool:
        turns = sizes[start:] + sizes[:start]
        return all(is_same(roipool.roi_align(maps, rois, each), expected[each]) for each in turns)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(pool, range(0, 200, 25)))
