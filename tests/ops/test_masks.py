"""Masks pasted into pictures, encoded as run lengths, and cut out of pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import DTYPES, Array
from _support.compare import assert_close, assert_same_bits

import roipool
from roipool import _cpu, reference
from roipool._masks.request import Pasting

REAL = {"float64": np.float64}  # of coordinates and values; of other masks float32
dtypes = pytest.mark.parametrize("dtype", [*DTYPES, "uint8", "bool"])
floats = pytest.mark.parametrize("dtype", DTYPES)
every_rule = pytest.mark.parametrize("rule", ["faded", "cut", "resized"])
SQUARE = np.ones((1, 2, 2), np.float32)
BOX = np.array([[1.0, 1, 3, 3]])
ITSELF: list[Any] = []
ITSELF.append(ITSELF)

Call = tuple[Array, Array, tuple[int, int]]


def real_of(dtype: str) -> Any:
    """Return the type that masks are computed in."""
    return REAL.get(dtype, np.float32)


def random_boxes(rng: np.random.Generator, count: int, size: tuple[int, int]) -> Array:
    """Return boxes, some beyond the picture, on whole and half pixels, reversed, or not finite."""
    low = rng.uniform(-0.5, 1, (count, 2)) * size[::-1]
    boxes = np.concatenate([low, low + rng.uniform(0, 1.5, (count, 2)) * size[::-1]], axis=1)
    steps = rng.choice([0, 1, 2], count)
    boxes = np.where(steps[:, None] > 0, np.round(boxes * steps[:, None]) / 2, boxes)
    odd = rng.random(count) < 0.1
    boxes[odd] = boxes[odd][:, rng.permutation(4)]
    boxes[rng.random(count) < 0.05, rng.integers(4)] = rng.choice([np.nan, np.inf, -np.inf])
    return boxes.astype(np.float32).astype(np.float64)


def calls(dtype: str, count: int, seed: int = 0) -> Iterator[Call]:
    """Yield masks, boxes and sizes of pictures."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = (int(rng.integers(1, 24)), int(rng.integers(1, 24)))
        masks = rng.integers(0 if rng.random() < 0.1 else 1, 5)
        values = rng.random((masks, *rng.integers(1, 9, 2)))
        if dtype in ("uint8", "bool"):
            values = values > 0.5 if dtype == "bool" else np.floor(256 * values)
        yield values.astype(DTYPES.get(dtype, dtype)), random_boxes(rng, masks, size), size


def oracle(call: Call, dtype: str, **options: Any) -> Array:
    masks, boxes, size = call
    return reference.paste_masks(masks, boxes, size, coordinate_dtype=real_of(dtype), **options)


def as_float64(array: Array) -> Array:
    return array.astype(np.float64)


# ---- Values


@dtypes
def test_masks_are_those_of_the_oracle(backend: Backend, dtype: str) -> None:
    for call in calls(dtype, 60 if backend.name == "cpu" else 8):
        masks, boxes, size = call
        found = backend.library.paste_masks(masks, boxes, size)
        assert found.dtype == (np.float32 if dtype in ("uint8", "bool") else masks.dtype)
        expected = oracle(call, dtype)
        assert_close(found, expected, 2 * as_float64(masks).max(initial=0.5))


@every_rule
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rules_of_other_systems(gpu: Backend, dtype: str, rule: str) -> None:
    for masks, boxes, size in calls(dtype, 30):
        real = real_of(dtype)
        table = np.round(boxes).astype(real)
        pasting = Pasting(size, rule, 1 if rule == "resized" else 0)  # type: ignore[arg-type]
        with np.errstate(invalid="ignore"):
            options = {"rule": rule, "frame": pasting.frame}
        expected = oracle((masks, table, size), dtype, **options)
        got = np.empty(expected.shape, masks.dtype)
        _cpu.paste(masks, table, pasting, got)
        assert_close(got, expected, np.abs(expected) + 1)
        if expected.size:
            on_gpu = gpu.to_device(np.empty_like(got))
            with on_gpu.device:
                gpu.module.paste(gpu.to_device(masks), gpu.to_device(table), pasting, on_gpu)
            assert_same_bits(gpu.to_host(on_gpu), got)


@dtypes
def test_a_gpu_and_the_cpu_agree_in_every_bit(gpu: Backend, dtype: str) -> None:
    for masks, boxes, size in calls(dtype, 6, seed=1):
        if not masks.size:
            continue
        limit = 128.0 if dtype == "uint8" else 0.5
        for options in ({}, {"threshold": limit}, {"dtype": "uint8"}):
            got = gpu.library.paste_masks(masks, boxes, size, **options)
            assert_same_bits(got, roipool.paste_masks(masks, boxes, size, **options))


@dtypes
def test_a_threshold_compares_values(dtype: str) -> None:
    for masks, boxes, size in calls(dtype, 40):
        values = roipool.paste_masks(masks, boxes, size, dtype=None)
        exact = as_float64(masks).astype(real_of(dtype))  # not rounded to the masks' type
        values = roipool.paste_masks(exact, boxes, size)
        for threshold in (0.25, 0.5, 100.0):
            got = roipool.paste_masks(masks, boxes, size, threshold=threshold)
            assert_same_bits(got, values >= real_of(dtype)(threshold))
            assert got.dtype == bool


@dtypes
def test_bytes_are_cut(dtype: str) -> None:
    for masks, boxes, size in calls(dtype, 40):
        values = roipool.paste_masks(as_float64(masks).astype(real_of(dtype)), boxes, size)
        is_byte = dtype in ("uint8", "bool")
        scaled = values if is_byte else values * real_of(dtype)(255)
        got = roipool.paste_masks(masks, boxes, size, dtype=np.uint8)
        assert_same_bits(got, scaled.astype(np.uint8))


def test_bytes_hold_what_they_can() -> None:
    masks = np.array([[[np.nan, -1, 2, np.inf]]], np.float32)
    found = roipool.paste_masks(masks, [[0, 0, 4, 1]], (1, 4), dtype="uint8")
    assert found.tolist() == [[[0, 0, 255, 255]]]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pieces_are_parts_of_pictures(backend: Backend, dtype: str) -> None:
    for masks, boxes, size in calls(dtype, 20 if backend.name == "cpu" else 3):
        table, there = backend.to_device(boxes), backend.to_device(masks)
        pieces, places = roipool.paste_masks(there, table, size, crop=True)
        expected = roipool.paste_masks(masks, boxes, size)
        assert len(pieces) == len(masks)
        assert places.shape == (len(masks), 2)
        for piece, (row, column), whole in zip(pieces, places, expected, strict=True):
            part = backend.to_host(piece)
            picture = np.zeros_like(whole)
            picture[row : row + part.shape[0], column : column + part.shape[1]] = part
            assert_same_bits(picture, whole)


def test_a_fourth_axis_is_kept() -> None:
    masks = np.ones((3, 1, 2, 2), np.float32)
    boxes = np.tile(BOX, (3, 1))
    assert roipool.paste_masks(masks, boxes, (4, 5)).shape == (3, 1, 4, 5)
    pieces, _ = roipool.paste_masks(masks, boxes, (4, 5), crop=True)
    assert [each.shape for each in pieces] == [(1, 3, 3)] * 3


def test_cells_of_weight_0_are_not_read(backend: Backend) -> None:
    masks = np.array([[[1, np.nan], [np.inf, 2]]], np.float32)
    found = backend.library.paste_masks(masks, np.array([[0.0, 0, 2, 2]]), 2)
    assert_same_bits(found, masks)


@pytest.mark.parametrize(
    "box",
    [[1, 1, 1, 3], [3, 1, 1, 3], [np.nan, 1, 3, 3], [1, -np.inf, 3, 3], [-3e38, 1, 3e38, 3]],
)
def test_boxes_without_area_paste_nothing(backend: Backend, box: list[float]) -> None:
    table = np.array([box], np.float32)
    library = backend.library
    assert not library.paste_masks(SQUARE, table, (4, 5)).any()
    assert roipool.masks_to_rle(SQUARE, table, (4, 5), areas=True)[1].tolist() == [0]
    gradient = np.ones((1, 4, 5), np.float32)
    assert not library.paste_masks_backward(gradient, table, SQUARE.shape).any()
    assert not library.paste_masks_backward_boxes(gradient, SQUARE, table).any()


def test_out_is_filled(backend: Backend) -> None:
    expected = roipool.paste_masks(SQUARE, BOX, (4, 5), threshold=0.5)
    out = backend.to_device(np.ones((1, 4, 5), bool))
    masks, table = backend.to_device(SQUARE), backend.to_device(BOX)
    found = roipool.paste_masks(masks, table, (4, 5), threshold=0.5, out=out)
    assert found is out
    assert_same_bits(backend.to_host(out), expected)


@dtypes
def test_out_is_cleared_outside_boxes(backend: Backend, dtype: str) -> None:
    """A result of its own begins as zeros; the caller's does not."""
    for masks, boxes, size in calls(dtype, 20 if backend.name == "cpu" else 3, seed=8):
        for options in ({}, {"threshold": 0.5}, {"dtype": "uint8"}):
            expected = roipool.paste_masks(masks, boxes, size, **options)
            out = backend.to_device(np.full_like(expected, 7))
            given = backend.to_device(masks), backend.to_device(boxes)
            roipool.paste_masks(*given, size, **options, out=out)
            assert_same_bits(backend.to_host(out), expected)


def test_out_may_have_gaps_or_share_memory() -> None:
    every = np.full((1, 4, 10), 7, np.float32)
    roipool.paste_masks(SQUARE, BOX, (4, 5), out=every[:, :, ::2])
    assert_same_bits(every[:, :, ::2], roipool.paste_masks(SQUARE, BOX, (4, 5)))
    assert (every[:, :, 1::2] == 7).all()
    masks = np.random.default_rng(0).random((1, 4, 4)).astype(np.float32)
    expected = roipool.paste_masks(masks, BOX, 4)
    assert_same_bits(roipool.paste_masks(masks, BOX, 4, out=masks), expected)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_bits_do_not_depend_on_threads(same_threads_after: None, threads: int) -> None:
    rng = np.random.default_rng(0)
    masks, size = rng.random((9, 28, 28)).astype(np.float32), (300, 500)
    boxes = random_boxes(rng, 9, size)
    gradient = rng.normal(size=(9, *size)).astype(np.float32)

    def results() -> list[Any]:
        rle, areas = roipool.masks_to_rle(masks, boxes, size, areas=True)
        return [
            roipool.paste_masks(masks, boxes, size),
            roipool.paste_masks_backward(gradient, boxes, masks.shape),
            roipool.paste_masks_backward_boxes(gradient, masks, boxes),
            areas,
            np.frombuffer(b"".join(each["counts"] for each in rle), np.uint8),
        ]

    one = results()
    roipool.set_num_threads(threads)
    for first, second in zip(one, results(), strict=True):
        assert_same_bits(first, second)


# ---- Gradients


@floats
def test_gradients_are_those_of_the_oracle(backend: Backend, dtype: str) -> None:
    rng, real = np.random.default_rng(5), real_of(dtype)
    for masks, boxes, size in calls(dtype, 30 if backend.name == "cpu" else 3, seed=2):
        gradient = rng.normal(size=(len(masks), *size)).astype(masks.dtype)
        given = as_float64(gradient)
        expected = reference.paste_masks_backward(given, boxes, masks.shape, coordinate_dtype=real)
        terms = reference.paste_masks_backward(
            np.abs(given), boxes, masks.shape, coordinate_dtype=real
        )
        found = backend.library.paste_masks_backward(gradient, boxes, masks.shape)
        assert_close(found, expected, terms + 1e-6)
        if not masks.size:
            continue
        expected = reference.paste_masks_backward_boxes(
            given, as_float64(masks), boxes, coordinate_dtype=real
        )
        found = backend.library.paste_masks_backward_boxes(gradient, masks, boxes)
        assert found.dtype == real
        scale = sizes_of_terms(masks, boxes, given)
        assert_close(found, expected, scale + 1e-6, ulps=64)


def sizes_of_terms(masks: Array, boxes: Array, gradient: Array) -> Array:
    """Return a bound of the sums of absolute terms of the gradient of boxes."""
    with np.errstate(all="ignore"):
        sides = boxes[:, 2:] - boxes[:, :2]
        slopes = np.where(sides > 0, np.array(masks.shape[:0:-1]) / sides, 0)
    total = np.abs(gradient).sum(axis=(1, 2))[:, None] * slopes
    return np.nan_to_num(np.concatenate([total, total], axis=1))


def test_the_gradient_of_boxes_is_a_slope() -> None:
    rng, step = np.random.default_rng(4), 1e-6
    masks, size = rng.random((3, 5, 4)), (9, 11)
    boxes = np.sort(rng.uniform(-2, 12, (3, 2, 2)), axis=1).reshape(3, 4)
    gradient = rng.normal(size=(3, *size))
    found = roipool.paste_masks_backward_boxes(gradient, masks, boxes)
    for number in range(4):
        moved = [boxes + step * sign * np.eye(4)[number] for sign in (-1, 1)]
        low, high = (
            (roipool.paste_masks(masks, each, size) * gradient).sum(axis=(1, 2)) for each in moved
        )
        np.testing.assert_allclose(found[:, number], (high - low) / (2 * step), atol=1e-5)


@pytest.mark.parametrize("box", [[0, 0, 5e-324, 1], [0, 0, 1, 1e-310]])
def test_no_gradient_is_lost_in_a_box_of_almost_no_side(gpu: Backend, box: list[float]) -> None:
    """Cells per pixel are more than a number holds."""
    masks, table = np.ones((1, 1, 1)), np.array([box])
    for library in (roipool, gpu.library):
        found = library.paste_masks_backward_boxes(np.ones((1, 1, 1)), masks, table)
        assert found.tolist() == [[0, 0, 0, 0]]


# ---- Run lengths


@dtypes
def test_run_lengths_are_those_of_pasted_masks(dtype: str) -> None:
    limit = 128.0 if dtype == "uint8" else 0.5
    for masks, boxes, size in calls(dtype, 60, seed=6):
        pasted = roipool.paste_masks(masks, boxes, size, threshold=limit)
        found, areas = roipool.masks_to_rle(masks, boxes, size, limit, areas=True)
        assert [each["size"] for each in found] == [[*size]] * len(masks)
        runs = map(reference.run_lengths, pasted)
        assert [each["counts"] for each in found] == [*map(reference.compressed, runs)]
        assert areas.tolist() == pasted.sum(axis=(1, 2)).tolist()
        assert roipool.masks_to_rle(masks, boxes, size, limit) == found


def test_run_lengths_are_those_of_pycocotools() -> None:
    coco = pytest.importorskip("pycocotools.mask")
    for masks, boxes, size in calls("float32", 200, seed=7):
        pasted = roipool.paste_masks(masks, boxes, size, threshold=0.5)
        pictures = np.asfortranarray(pasted.transpose(1, 2, 0).astype(np.uint8))
        found, areas = roipool.masks_to_rle(masks, boxes, size, areas=True)
        assert found == coco.encode(pictures)
        assert areas.tolist() == coco.area(found).tolist() if len(masks) else not len(areas)


def test_run_lengths_of_a_picture_that_no_memory_holds() -> None:
    side = 2**31 - 1
    found, areas = roipool.masks_to_rle(SQUARE, [[8.0, 8, 16, 16]], side, areas=True)
    small = roipool.paste_masks(SQUARE, [[8.0, 8, 16, 16]], 24, threshold=0.5)
    assert areas.tolist() == [small.sum()]
    assert len(found[0]["counts"]) < 60


def test_run_lengths_of_a_gpu(gpu: Backend) -> None:
    masks, boxes = gpu.to_device(SQUARE), gpu.to_device(BOX)
    assert roipool.masks_to_rle(masks, boxes, (4, 5)) == roipool.masks_to_rle(SQUARE, BOX, (4, 5))


# ---- Targets


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32", "float64"])
def test_targets_are_means_of_roi_align(backend: Backend, dtype: str) -> None:
    rng = np.random.default_rng(0)
    masks = (rng.random((3, 20, 30)) > 0.5).astype(dtype)
    boxes, indices = random_boxes(rng, 8, (20, 30)), rng.integers(0, 3, 8)
    boxes = np.nan_to_num(boxes, posinf=9, neginf=0)
    found = backend.library.crop_masks(masks, boxes, indices, (7, 5))
    numbers = masks.astype("float64" if dtype == "float64" else "float32")
    expected = roipool.roi_align(numbers[:, None], boxes, (7, 5), batch_indices=indices)[:, 0]
    assert_close(found, as_float64(expected), 1.0)
    limits = roipool.crop_masks(masks, boxes, indices, (7, 5), threshold=0.5)
    assert_same_bits(limits, roipool.crop_masks(masks, boxes, indices, (7, 5)) >= 0.5)


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "crop_and_resize"])
def test_maps_of_bool_are_bytes(backend: Backend, name: str) -> None:
    maps = np.random.default_rng(0).random((2, 3, 9, 8)) > 0.5
    boxes = np.array([[1.0, 2, 6, 7], [0, 0, 3, 4]]) / (8 if name == "crop_and_resize" else 1)
    images, function = np.array([0, 1]), getattr(backend.library, name)
    given = {"boxes": boxes, "box_indices": images, "crop_size": 3}
    if name != "crop_and_resize":
        given = {"rois": boxes, "batch_indices": images, "output_size": 3}
    assert_same_bits(function(maps, **given), function(maps.view(np.uint8), **given))


# ---- Wrong arguments


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"masks": SQUARE[0]}, ValueError, r"masks must have shape \(K, h, w\) or"),
        ({"masks": np.ones((1, 2, 2, 2), np.float32)}, ValueError, "masks must have shape"),
        ({"masks": SQUARE.astype(int)}, TypeError, "masks must have dtype float16"),
        ({"masks": [[1.0]]}, TypeError, "masks must be a NumPy or CuPy array"),
        ({"boxes": BOX[:, :3]}, ValueError, r"boxes must have shape \(K, 4\): x1"),
        ({"boxes": np.tile(BOX, (2, 1))}, ValueError, "one box per mask: got 2 for 1"),
        ({"boxes": [["a"] * 4]}, TypeError, "boxes must hold real numbers"),
        ({"image_size": 0}, ValueError, "image_size must be from 1"),
        ({"image_size": (4, 2**32)}, ValueError, "image_size must be from 1 to 2147483647"),
        ({"image_size": (4, 5, 6)}, ValueError, "image_size must be an int or a pair"),
        ({"image_size": 4.0}, TypeError, "image_size must be an int or a pair"),
        ({"threshold": "half"}, TypeError, "threshold must be a real number, got 'half'"),
        ({"threshold": np.nan}, ValueError, "threshold must be finite, got nan"),
        ({"threshold": True}, TypeError, "threshold must be a real number"),
        ({"dtype": "int8"}, TypeError, "dtype must be None or float32 or uint8 for float32"),
        ({"dtype": ITSELF}, TypeError, "dtype must be None or float32 or uint8 for float32"),
        ({"dtype": bool}, TypeError, "for bool, give a threshold"),
        ({"dtype": "uint8", "threshold": 0.5}, TypeError, "dtype must be None or bool with a"),
        ({"crop": 1}, TypeError, "crop must be a bool"),
        ({"out": np.ones((1, 4, 4), np.float32)}, ValueError, "out must have shape"),
        ({"out": np.ones((1, 4, 5))}, TypeError, "out must have dtype float32"),
        ({"crop": True, "out": np.ones((1, 4, 5), np.float32)}, TypeError, "out must be None"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], error: type[Exception], text: str) -> None:
    given = {"masks": SQUARE, "boxes": BOX, "image_size": (4, 5), **change}
    out = given.get("out")
    before = None if out is None else out.copy()
    with pytest.raises(error, match=text):
        roipool.paste_masks(**given)
    if before is not None:
        assert_same_bits(out, before)
    shared = {"masks", "boxes", "image_size", "threshold"}
    if change.keys() <= shared:
        with pytest.raises(error, match=text):
            roipool.masks_to_rle(**given)


@pytest.mark.parametrize(
    ("shape", "error", "text"),
    [
        ((2, 2, 2), ValueError, "masks_shape must be of as many masks as grad_output, 1"),
        ((1, 2), ValueError, "masks_shape must have shape"),
        ((1, -2, 2), ValueError, "masks_shape must not have negative sizes"),
        ("abc", TypeError, "masks_shape must be integers"),
        ((1, 2**40, 2), ValueError, "height and width must be at most"),
    ],
)
def test_wrong_shapes_of_masks(shape: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        roipool.paste_masks_backward(np.ones((1, 4, 5), np.float32), BOX, shape)


def test_a_shape_may_be_read_but_once() -> None:
    gradient = np.ones((1, 4, 5), np.float32)
    found = roipool.paste_masks_backward(gradient, BOX, iter((1, 2, 2)))  # type: ignore[arg-type]
    assert_same_bits(found, roipool.paste_masks_backward(gradient, BOX, (1, 2, 2)))


def test_gradients_of_other_masks() -> None:
    gradient = np.ones((1, 4, 5), np.float32)
    with pytest.raises(TypeError, match="grad_output must have the dtype of masks"):
        roipool.paste_masks_backward_boxes(gradient, SQUARE.astype(np.float64), BOX)
    with pytest.raises(ValueError, match="grad_output must be of as many masks"):
        roipool.paste_masks_backward_boxes(gradient, np.ones((2, 2, 2), np.float32), BOX)


def test_a_result_that_no_memory_holds() -> None:
    with pytest.raises(MemoryError):
        roipool.paste_masks(SQUARE, BOX, 2**31 - 1)


def test_a_mean_of_the_threshold_itself_is_in_the_target() -> None:
    masks = np.zeros((1, 8, 8), np.float32)
    masks[0, :, 4:] = 1
    assert roipool.crop_masks(masks, [[2, 0, 6, 8]], [0], 1, threshold=0.5).all()
