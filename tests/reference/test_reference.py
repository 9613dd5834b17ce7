"""The oracle itself: published numbers, goldens, and a second, sample-by-sample ROI align."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.compare import Array, apart, assert_close, beside
from _support.golden_data import FOLDER, goldens
from _support.loops import each

from roipool import reference

PROBE = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
BOX, SHIFTED, QUARTERS = (1, 1, 3, 3), (0.5, 0.5, 2.5, 2.5), (1.25, 1.25, 3.25, 3.25)
REVERSED, POINT = (3, 3, 1, 1), (2, 2, 2, 2)

both_types = each(real={"float32": np.float32, "float64": np.float64})


def probe(op: Callable[..., Any], box: tuple[float, ...], *args: Any, **options: Any) -> Array:
    """Return 2 by 2 bins of one box on the map 1 ... 25."""
    actual = op(PROBE, [[0, *box]], 2, 1.0, *args, **options)
    return (actual[0] if isinstance(actual, tuple) else actual).ravel()


# ---- Results of released wheels and published sources for the map 1 ... 25


@both_types
@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (BOX, [13, 14, 18, 19]),
        (SHIFTED, [13, 14, 18, 19]),
        (REVERSED, [19] * 4),
        ((-3, -3, -2, -2), [0] * 4),
    ],
)
def test_roi_pool_by_hand(box: tuple[float, ...], expected: list[float], real: type) -> None:
    actual = probe(reference.roi_pool, box, coordinate_dtype=real)
    np.testing.assert_array_equal(actual, expected)


@both_types
@pytest.mark.parametrize(
    ("box", "ratio", "aligned", "expected"),
    [
        (BOX, 2, True, [7, 8, 12, 13]),
        (BOX, 2, False, [10, 11, 15, 16]),
        (REVERSED, 2, True, [13, 12, 8, 7]),
        (REVERSED, 0, True, [0] * 4),
        (REVERSED, 2, False, [20.5, 21, 23, 23.5]),
        (REVERSED, 0, False, [20.5, 21, 23, 23.5]),
        (POINT, 2, True, [10] * 4),
        (POINT, 0, True, [0] * 4),
        (POINT, 2, False, [14.5, 15, 17, 17.5]),
        (POINT, 0, False, [14.5, 15, 17, 17.5]),
        ((-6, -6, -2, -2), 2, True, [0] * 4),
        ((8, 8, 12, 12), 2, True, [0] * 4),
    ],
)
def test_roi_align_by_hand(
    box: tuple[float, ...], ratio: int, aligned: bool, expected: list[float], real: type
) -> None:
    actual = probe(reference.roi_align, box, ratio, aligned=aligned, coordinate_dtype=real)
    np.testing.assert_array_equal(actual, expected)


@both_types
@pytest.mark.parametrize(
    ("op", "box", "expected"),
    [
        (reference.caffe_roi_align, BOX, [52, 29, 41, 22]),  # whole coordinates count twice
        (reference.caffe_roi_align, SHIFTED, [10, 23, 35, 76]),
        (reference.caffe_roi_align, QUARTERS, [14.5, 16, 22, 23.5]),
        (reference.mxnet_roi_align, BOX, [13, 14.5, 20.5, 22]),
        (reference.mxnet_roi_align, SHIFTED, [10, 11.5, 17.5, 19]),
        (reference.mxnet_roi_align, QUARTERS, [14.5, 16, 22, 23.5]),
        (reference.mmcv_roi_pool, (1.5, 1.5, 2.5, 2.5), [13, 14, 18, 19]),
        (reference.mmcv_roi_pool, REVERSED, [0] * 4),
    ],
)
def test_one_system_by_hand(
    op: Callable[..., Any], box: tuple[float, ...], expected: list[float], real: type
) -> None:
    np.testing.assert_array_equal(probe(op, box, coordinate_dtype=real), expected)


@both_types
def test_maximum_by_hand(real: type) -> None:
    interpolated = probe(reference.roi_align, BOX, 2, mode="max", coordinate_dtype=real)
    np.testing.assert_array_equal(interpolated, [8.5, 9.5, 13.5, 14.5])
    corners = probe(reference.onnx_roi_align_max, BOX, 2, coordinate_dtype=real)
    np.testing.assert_array_equal(corners, [3.9375, 4.5, 6.75, 7.3125])


def test_mmcv_roi_pool_marks_skipped_boxes_with_argmax_0() -> None:
    _, argmax = reference.mmcv_roi_pool(PROBE, [[0, *REVERSED], [0, 9, 9, 9, 9]], 2)
    np.testing.assert_array_equal(argmax.reshape(2, 4), [[0] * 4, [-1] * 4])


def test_mmcv_maximum_starts_at_minus_10000() -> None:
    far, empty = [0, 9, 9, 12, 12], [0, *POINT]
    values, y, x = reference.mmcv_roi_align_max(PROBE, [far, empty], 1)
    assert (values[0].item(), y[0].item(), x[0].item()) == (0, 9, 9)
    assert (values[1].item(), y[1].item(), x[1].item()) == (-10000, -1, -1)


@both_types
@pytest.mark.parametrize(
    ("length", "p", "bins", "run"), [(57, 6, 7, (48, 58)), (62, 7, 14, (30, 36))]
)
def test_bin_edges_are_rounded_in_the_coordinate_type(
    length: int, p: int, bins: int, run: tuple[int, int], real: type
) -> None:
    # float32 puts these edges a cell further out than exact arithmetic does, and frameworks too.
    exact = (p * length // bins, -(-(p + 1) * length // bins))
    box = reference.BoxOnMap((0, 0, 0, length - 1), (bins, 1), (100, 1), coordinate_dtype=real)
    actual = reference.bin_of(reference.ROI_POOL, box, (p, 0))
    rows = [sample.y for sample in actual.samples]
    assert (rows[0], rows[-1] + 1) == (run if real is np.float32 else exact)


def test_crop_and_resize_by_hand() -> None:
    # Published example of RoIAlign.pytorch: pixel boxes to normalised ones, 4 by 4 cells.
    maps = np.stack([np.arange(49.0).reshape(1, 7, 7)] * 2)
    maps[0] += 10

    def normalised(x1: float, y1: float, x2: float, y2: float) -> list[float]:
        wide, high = (x2 - x1) / 4, (y2 - y1) / 4
        x, y = (x1 + wide / 2 - 0.5) / 6, (y1 + high / 2 - 0.5) / 6
        return [y, x, y + high * 3 / 6, x + wide * 3 / 6]

    boxes = [normalised(1, 0, 5, 4), normalised(0.5, 3.5, 4, 7)]
    actual = reference.crop_and_resize(maps, boxes, [0, 1], 4)[:, 0]
    first = [[start + i for i in range(4)] for start in (11, 18, 25, 32)]
    second = [[start + 0.875 * i for i in range(4)] for start in (24.5, 30.625, 36.75)]
    np.testing.assert_allclose(actual, [first, [*second, [0] * 4]], rtol=1e-14)


def test_slope_at_a_cell_is_the_one_to_the_right() -> None:
    maps, one = np.array([0.0, 1, 5, 7]).reshape(1, 1, 1, 4), np.ones((1, 1, 1, 1))
    at_cell_1 = reference.roi_align_backward_rois(one, maps, [[0, 1, 0, 2, 1]], 1.0, 1)
    assert at_cell_1.tolist() == [[2, 0, 2, 0]]
    held_at_length_1 = reference.roi_align_backward_rois(
        one, maps, [[0, 1, 0, 1.5, 0.5]], 1.0, 1, aligned=False
    )
    assert held_at_length_1.tolist() == [[4, 0, 0, 0]]


# ---- Answers of released wheels for random boxes


@pytest.mark.parametrize(
    ("system", "name", "aligned"),
    [
        ("torchvision", "align", None),
        ("mmcv", "avg", None),
        ("mxnet", "align", None),
        ("onnxruntime", "v10_avg", False),
        ("onnxruntime", "v16_avg", None),
    ],
)
def test_average_as_others_compute_it(system: str, name: str, aligned: bool | None) -> None:
    for case in goldens(system, name):
        chosen = {
            "aligned": case.aligned if aligned is None else aligned,
            "coordinate_dtype": np.float32,
        }
        place = (case.rois, case.size, case.scale, case.sampling)
        maps = beside(case.features, np.abs(case.features))
        actual, terms = apart(reference.roi_align(maps, *place, **chosen))
        assert_close(case.answers[name], actual, terms)
        if f"{name}_grad" in case.answers:
            back = (case.rois, maps.shape, case.scale, case.sampling)
            grads = beside(case.grad, np.abs(case.grad))
            actual, terms = apart(reference.roi_align_backward(grads, *back, **chosen))
            assert_close(case.answers[f"{name}_grad"], actual, terms)


@pytest.mark.parametrize(
    ("system", "name"), [("torchvision", "pool"), ("mxnet", "pool"), ("onnxruntime", "maxroipool")]
)
def test_roi_pool_as_others_compute_it(system: str, name: str) -> None:
    for case in goldens(system, name):
        actual, argmax = reference.roi_pool(
            case.features,
            case.rois,
            case.size,
            case.scale,
            return_argmax=True,
            coordinate_dtype=np.float32,
        )
        np.testing.assert_array_equal(actual, case.answers[name])
        if f"{name}_argmax" in case.answers:
            np.testing.assert_array_equal(argmax, case.answers[f"{name}_argmax"])
        if f"{name}_grad" in case.answers:
            shape = beside(case.features, case.features).shape
            grads = beside(case.grad, np.abs(case.grad))
            both = beside(argmax, argmax)
            actual, terms = apart(reference.roi_pool_backward(grads, both, case.rois, shape))
            assert_close(case.answers[f"{name}_grad"], actual, terms)


def test_position_sensitive_average_as_mxnet_computes_it() -> None:
    for case in goldens("mxnet", "ps"):
        chosen = {"aligned": case.aligned, "coordinate_dtype": np.float32}
        c, ph, pw = np.indices(case.ps_grad.shape[1:])
        channel = (c * case.size[0] + ph) * case.size[1] + pw
        place = (case.rois, case.size, case.scale, case.sampling)
        maps = beside(case.ps_features, np.abs(case.ps_features))
        actual, terms = (
            half[:, channel, ph, pw] for half in apart(reference.roi_align(maps, *place, **chosen))
        )
        assert_close(case.answers["ps"], actual, terms)


def test_maximum_as_mmcv_computes_it() -> None:
    for case in goldens("mmcv", "max"):
        place = (case.rois, case.size, case.scale, case.sampling)
        chosen = {"aligned": case.aligned, "coordinate_dtype": np.float32}
        actual, y, x = reference.mmcv_roi_align_max(case.features, *place, **chosen)
        maps = beside(case.features, np.abs(case.features))
        both, indices = reference.roi_align(maps, *place, mode="max", return_argmax=True, **chosen)
        (core, terms), argmax = apart(both), apart(indices)[0]
        assert_close(case.answers["max"], actual, np.maximum(terms, np.abs(actual)))
        np.testing.assert_array_equal(y, case.answers["max_y"])
        np.testing.assert_array_equal(x, case.answers["max_x"])
        sampled = actual > -10000
        assert_close(case.answers["max"][sampled], core[sampled], terms[sampled])
        actual, terms = apart(
            reference.roi_align_backward(
                beside(case.grad, np.abs(case.grad)),
                case.rois,
                maps.shape,
                case.scale,
                case.sampling,
                mode="max",
                argmax=beside(argmax, argmax),
                **chosen,
            )
        )
        assert_close(case.answers["max_grad"], actual, terms)


@pytest.mark.parametrize(("name", "aligned"), [("v10_max", False), ("v16_max", None)])
def test_maximum_as_onnxruntime_computes_it(name: str, aligned: bool | None) -> None:
    for case in goldens("onnxruntime", name):
        place = (case.rois, case.size, case.scale, case.sampling)
        chosen = {
            "aligned": case.aligned if aligned is None else aligned,
            "coordinate_dtype": np.float32,
        }
        actual = reference.onnx_roi_align_max(case.features, *place, **chosen)
        assert_close(case.answers[name], actual, np.abs(actual))


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_crop_and_resize_as_tensorflow_computes_it(method: str) -> None:
    for case in goldens("tensorflow", method):
        maps, grad = (np.moveaxis(values, 1, -1) for values in (case.features, case.grad))
        boxes, images = case.boxes, case.rois[:, 0].astype(int)
        chosen: dict[str, Any] = {"layout": "NHWC", "pinned": False, "coordinate_dtype": np.float32}
        actual = reference.crop_and_resize(
            maps, boxes, images, case.size, method=method, extrapolation_value=0.5, **chosen
        )
        # TensorFlow's a + (b - a) * t rounds relative to the pixels, not to the weighted ones.
        assert_close(
            case.answers[method], actual, np.abs(maps).max(), ulps=0 if method == "nearest" else 1
        )
        both = np.concatenate([grad, np.abs(grad)], axis=3)
        shape = (*maps.shape[:3], 2 * maps.shape[3])
        back = reference.crop_and_resize_backward(
            both, boxes, images, shape, method=method, **chosen
        )
        actual, terms = np.split(back, 2, axis=3)
        assert_close(case.answers[f"{method}_grad"], actual, terms)
        actual = reference.crop_and_resize_backward_boxes(grad, maps, boxes, images, **chosen)
        terms = 2 * np.abs(grad).sum(axis=(1, 2, 3))[:, None] * np.abs(maps).max()
        terms = terms * (np.array([maps.shape[1], maps.shape[2]] * 2) - 1)
        assert_close(case.answers[f"{method}_grad_boxes"], actual, terms, ulps=1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_walkthrough_of_mmcv(device: str) -> None:
    text = json.loads((FOLDER / "mmcv_walkthrough.json").read_text())
    part = text[device]
    maps = np.zeros((1, 1, 10, 10))
    maps[0, 0, :8] = part["features_channel0_rows0to7"]
    actual = reference.roi_align(maps, [text["roi"]], 3, 0.5, 0)
    # Printed to 4 decimals, pixels and results alike.
    np.testing.assert_allclose(actual[0, 0], np.array(part["output"])[0], rtol=0, atol=1.1e-4)
    grad = reference.roi_align_backward(np.ones((1, 1, 3, 3)), [text["roi"]], maps.shape, 0.5, 0)
    expected = part["grad_of_sum_channel0_rows0to7"]
    np.testing.assert_allclose(grad[0, 0, :8], expected, rtol=0, atol=0.6e-4)


# ---- A second ROI align, which computes every sample of the grid separately


def every_sample(
    maps: Array, roi: Array, bins: tuple[int, int], scale: float, ratio: int, aligned: bool
) -> Array:
    """Return the value of every sample as (C, PH, PW, samples); nothing is skipped or shared."""
    height, width = maps.shape[2:]
    low_x, low_y, high_x, high_y = roi[1:] * scale - (0.5 if aligned else 0)
    extents = (high_y - low_y, high_x - low_x)
    extents = tuple(extent if aligned else max(extent, 1.0) for extent in extents)
    bin_h, bin_w = extents[0] / bins[0], extents[1] / bins[1]
    grid_h, grid_w = (ratio or max(int(np.ceil(length)), 0) for length in (bin_h, bin_w))
    values = np.zeros((maps.shape[1], *bins, grid_h * grid_w))
    for ph, pw, iy, ix in itertools.product(*map(range, (*bins, grid_h, grid_w))):
        y = low_y + ph * bin_h + (iy + 0.5) * bin_h / grid_h
        x = low_x + pw * bin_w + (ix + 0.5) * bin_w / grid_w
        if y < -1 or y > height or x < -1 or x > width:
            continue
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
        top, left = int(y), int(x)
        bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
        image, down, across = maps[int(roi[0])], y - top, x - left
        values[:, ph, pw, iy * grid_w + ix] = (
            (1 - down) * (1 - across) * image[:, top, left]
            + (1 - down) * across * image[:, top, right]
            + down * (1 - across) * image[:, bottom, left]
            + down * across * image[:, bottom, right]
        )
    return values


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [0, 1, 2, 5])
@pytest.mark.parametrize("reach", [3.0, 20.0, 100.0])
def test_roi_align_sample_by_sample(reach: float, ratio: int, aligned: bool) -> None:
    rng = np.random.default_rng(int(reach) + ratio)
    maps = rng.normal(size=(2, 2, 3, 4))
    rois = np.column_stack([rng.integers(0, 2, 6), rng.uniform(-reach, reach, (6, 4))])
    chosen: dict[str, Any] = {"aligned": aligned}
    average = reference.roi_align(maps, rois, (2, 1), 0.7, ratio, **chosen)
    greatest = reference.roi_align(maps, rois, (2, 1), 0.7, ratio, mode="max", **chosen)
    for k, roi in enumerate(rois):
        values = every_sample(maps, roi, (2, 1), 0.7, ratio, aligned)
        if values.shape[-1] == 0:
            assert not average[k].any()
            assert not greatest[k].any()
            continue
        np.testing.assert_allclose(average[k], values.mean(axis=-1), rtol=0, atol=1e-13)
        np.testing.assert_allclose(greatest[k], values.max(axis=-1), rtol=0, atol=1e-13)
