"""What is special about CuPy arrays, on the emulator, and on a GPU where there is one.

The same decisions as on the CPU, nothing read back, boxes that are not checked on the host.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import emulator
import numpy as np
import pytest
from backends import Backend
from catalogue import Array, every_dtype, every_layout, in_layout, real_dtypes, shape_in_layout
from compare import compute_type
from run_python import run_python

import roipool
from roipool import _cpu, _cuda_work
from roipool._arguments import Regions
from roipool._geometry import Geometry
from roipool._source import kernel_source


def module_of(gpu: Backend) -> Any:
    return importlib.import_module("roipool._cuda")


# ---- Decisions


def hostile_boxes(seed: int, count: int = 60) -> Array:
    """Return boxes of one image: on cells and halves, far away, tiny, reversed, not finite."""
    rng = np.random.default_rng(seed)
    quarters = rng.integers(-16, 64, (count, 4)) / 4
    normal = rng.normal(6, 8, (count, 4))
    far = rng.choice([-1, 1], (count, 4)) * 10.0 ** rng.uniform(2, 12, (count, 4))
    ends = rng.choice([0, 1, 0.5, -0.5, 8, 9, np.nan, np.inf, -np.inf, 1e-30], (count, 4))
    kind = rng.integers(0, 4, (count, 4))
    return np.choose(kind, [quarters, normal, far, ends])


SAMPLED = [
    Geometry("roi_align", 0.6, (ratio, ratio), aligned)
    for ratio in (0, 1, 2, 20)
    for aligned in (True, False)
]
CELLS = ["roi_pool", "roi_average_pool", "mmcv_roi_pool", "caffe_roi_pool_gather"]
STEPS = ["caffe_roi_align", "mxnet_roi_align", "mxnet_roi_align_gather"]
MAXIMA = [
    *SAMPLED,
    *(Geometry("onnx_roi_align_max", 0.6, (ratio, 1), True) for ratio in (0, 2)),
    *(Geometry(name, 0.6) for name in (*CELLS, *STEPS)),
]
AVERAGES = [
    *SAMPLED,
    *(Geometry(name, 0.6) for name in CELLS),
    *(Geometry(name) for name in ("crop_bilinear", "crop_nearest", "crop_box_gradient")),
]


def regions_of(geometry: Geometry, dtype: Any, seed: int) -> Regions:
    boxes = hostile_boxes(seed)
    if geometry.definition.startswith("crop"):
        boxes = boxes / 8
    with np.errstate(over="ignore"):
        real = boxes.astype(compute_type(dtype))
    return Regions(np.ascontiguousarray(real), np.zeros(len(boxes), np.int64))


def on(gpu: Backend, regions: Regions) -> list[Any]:
    return [gpu.to_device(array) for array in regions]


def each(name: str, gpu: Backend) -> tuple[Any, Any]:
    """Return a function of both backends."""
    return getattr(_cpu, name), getattr(module_of(gpu), name)


@real_dtypes
@pytest.mark.parametrize("geometry", MAXIMA, ids=str)
def test_winners_are_the_cpus(gpu: Backend, geometry: Geometry, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    maps = np.round(rng.normal(size=(1, 3, 9, 11)) * 2).astype(dtype)  # with ties
    maps[rng.random(maps.shape) < 0.1] = np.nan
    regions = regions_of(geometry, dtype, 2)
    cells = geometry.definition in CELLS
    host, device = each("maximum", gpu)
    options: dict[str, Any] = {
        "layout": "NCHW", "lowest": -np.inf, "empty_value": -7.0, "winner_is_cell": cells,
        "outside_is_zero": geometry.definition == "roi_align", "return_argmax": True,
        "threads": 1, "out": None,
    }  # fmt: skip
    for restarts in (False, True):
        expected, winners = host(maps, *regions, geometry, (3, 2), nan_restarts=restarts, **options)
        got, found = device(
            gpu.to_device(maps), *on(gpu, regions), geometry, (3, 2), nan_restarts=restarts,
            **options,
        )  # fmt: skip
        np.testing.assert_array_equal(gpu.to_host(found), winners)
        np.testing.assert_array_equal(gpu.to_host(got), expected)


@real_dtypes
@pytest.mark.parametrize("geometry", MAXIMA, ids=str)
def test_gradients_of_winners_are_the_cpus(gpu: Backend, geometry: Geometry, dtype: Any) -> None:
    regions = regions_of(geometry, dtype, 3)
    shape = (1, 3, 9, 11)
    rng = np.random.default_rng(4)
    cells = geometry.definition in CELLS
    name = geometry.definition.removesuffix("_gather").replace("caffe_roi_pool", "roi_pool")
    forward = geometry._replace(definition=name)
    _, winners = _cpu.maximum(
        rng.normal(size=shape).astype(dtype), *regions, forward, (3, 2), layout="NCHW",
        lowest=-np.inf, empty_value=0.0, winner_is_cell=cells, outside_is_zero=False,
        return_argmax=True, threads=1, out=None,
    )  # fmt: skip
    grad = rng.normal(size=winners.shape).astype(dtype)
    options: dict[str, Any] = {
        "layout": "NCHW", "winner_is_cell": cells, "threads": 1, "out": None
    }  # fmt: skip
    host, device = each("maximum_backward", gpu)
    expected = host(grad, winners, *regions, geometry, shape, **options)
    arrays = [gpu.to_device(array) for array in (grad, winners, *regions)]
    got = gpu.to_host(device(*arrays, geometry, shape, **options))
    np.testing.assert_array_equal(got, expected)


@real_dtypes
@pytest.mark.parametrize("geometry", AVERAGES, ids=str)
def test_averages_are_the_cpus(gpu: Backend, geometry: Geometry, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    maps = rng.normal(size=(1, 3, 9, 11)).astype(dtype)
    maps[0, 2][rng.random((9, 11)) < 0.2] = np.nan  # shows which cells were read
    regions = regions_of(geometry, dtype, 6)
    host, device = each("average", gpu)
    options: dict[str, Any] = {"layout": "NCHW", "empty_value": -7.0, "threads": 1, "out": None}
    expected = host(maps, *regions, geometry, (3, 2), **options)
    got = device(gpu.to_device(maps), *on(gpu, regions), geometry, (3, 2), **options)
    atol = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=atol * 4)
    host, device = each("average_backward", gpu)
    grad = rng.normal(size=expected.shape).astype(dtype)
    expected = host(grad, *regions, geometry, maps.shape, layout="NCHW", threads=1, out=None)
    got = device(
        gpu.to_device(grad), *on(gpu, regions), geometry, maps.shape, layout="NCHW", threads=1,
        out=None,
    )  # fmt: skip
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=atol * 64)


@real_dtypes
@pytest.mark.parametrize("geometry", [*SAMPLED, *(Geometry(name, 0.6) for name in STEPS)], ids=str)
def test_positions_of_winners_are_the_cpus(gpu: Backend, geometry: Geometry, dtype: Any) -> None:
    regions = regions_of(geometry, dtype, 7)
    shape = (1, 2, 9, 11)
    maps = np.random.default_rng(8).normal(size=shape).astype(dtype)
    _, winners = _cpu.maximum(
        maps, *regions, geometry, (3, 2), layout="NCHW", lowest=-np.inf, empty_value=0.0,
        winner_is_cell=False, outside_is_zero=True, return_argmax=True, threads=1, out=None,
    )  # fmt: skip
    expected = _cpu.locate(winners, *regions, geometry, shape, threads=1)
    there = on(gpu, regions)
    backend = module_of(gpu)
    got = backend.locate(gpu.to_device(winners), *there, geometry, shape, threads=1)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(gpu.to_host(mine), theirs)
    numbers = _cpu.identify(*expected, *regions, geometry, shape, threads=1)
    back = backend.identify(*got, *there, geometry, shape, threads=1)
    np.testing.assert_array_equal(gpu.to_host(back), numbers)


# ---- Plans


BIN = np.dtype([("begin", np.int64), ("count", np.int32)], align=True)
SAMPLE_BIN = np.dtype(
    [("begin", np.int64), ("first", np.int64), ("total", np.int64), ("count", np.int32)],
    align=True,
)


def far_boxes(seed: int, count: int, size: int) -> Array:
    """Return boxes that hold the map and have any length, so that rounding moves their samples."""
    rng = np.random.default_rng(seed)
    before, after = (10.0 ** rng.uniform(0, 11, (count, 2)) for _ in range(2))
    inside = rng.uniform(-2, size + 2, (count, 2))
    low, high = inside - before, inside + after * rng.choice([0, 1], (count, 1))
    return np.hstack([low, high])


@pytest.mark.parametrize("bins", [1, 7, 300])
@pytest.mark.parametrize("size", [1, 6, 130])
@pytest.mark.parametrize(
    ("kind", "geometry"),
    [
        *((_cuda_work.SAMPLES, geometry) for geometry in MAXIMA),
        *((_cuda_work.TAPS, geometry) for geometry in AVERAGES),
    ],
    ids=lambda value: getattr(value, "kernel", str(value)),
)
def test_plans_fit_into_their_bound(
    kind: _cuda_work.PlanKind, geometry: Geometry, size: int, bins: int
) -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    boxes = np.vstack([hostile_boxes(10, 150), far_boxes(11, 150, size)])
    with np.errstate(over="ignore"):
        regions = Regions(boxes.astype(np.float32), np.zeros(len(boxes), np.int64))
    gpu = Backend("emulator")
    with emulator.active():
        backend = module_of(gpu)
        there = on(gpu, regions)
        sizes = backend.sizes_of(
            np.dtype(np.float32), *there, geometry, (1, 1, size, size), (bins, bins), "NCHW"
        )
        # With more room than they are given, to see how much they would use.
        bound = _cuda_work.plan_capacity
        file = "average_backward" if kind is _cuda_work.TAPS else "maximum_backward"
        bin_type = BIN if kind is _cuda_work.TAPS else SAMPLE_BIN
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_cuda_work, "plan_capacity", lambda *given: 2 * bound(*given) + 1000)
            work = _cuda_work.Work(file, sizes)
            ready = backend.Prepared.of(work, kind, kind.kernel, _cuda_work.PLANNING)
        with there[0].device:
            memory = ready.planned(*there).get()
        for axis in ("rows", "columns"):
            start = int(ready.plan.call[0][axis]["bins_at"])
            plan = memory[start : start + len(boxes) * bins * bin_type.itemsize].view(bin_type)
            assert plan.size == len(boxes) * bins
            used = int(np.max(plan["begin"] + plan["count"]))
            sampling = geometry.sampling[axis == "columns"]
            assert used < bound(kind, geometry.definition, sampling, size, bins)


# ---- Sizes beyond one block, one warp, one tile


@every_layout
@every_dtype
def test_few_blocks_do_all_the_work(
    gpu: Backend, monkeypatch: pytest.MonkeyPatch, dtype: Any, layout: str
) -> None:
    monkeypatch.setattr(module_of(gpu), "LARGEST_GRID", 3)
    monkeypatch.setattr(_cuda_work, "MANY_BOXES", 1)
    rng = np.random.default_rng(9)
    shape = (2, 41, 19, 35)
    maps = in_layout(rng.normal(size=shape).astype(dtype), layout)
    rois = np.array([[1, 1.5, 2, 30, 17], [0, 3, 3, 4, 18.5], [1, 9, 0, 22, 9]], np.float32)
    grad = in_layout(rng.normal(size=(3, 41, 37, 2)).astype(dtype), layout)
    place = {"layout": layout}
    device_rois = gpu.to_device(rois)
    got = roipool.roi_align(gpu.to_device(maps), device_rois, (37, 2), **place)
    back = roipool.roi_align_backward(
        gpu.to_device(grad), device_rois, shape_in_layout(shape, layout), **place
    )
    by_rois = roipool.roi_align_backward_rois(
        gpu.to_device(grad), gpu.to_device(maps), device_rois, **place
    )
    tolerance = 8 * float(np.finfo(np.float32).eps if dtype.itemsize > 2 else 2**-8)
    for mine, theirs in (
        (got, roipool.roi_align(maps, rois, (37, 2), **place)),
        (back, roipool.roi_align_backward(grad, rois, shape_in_layout(shape, layout), **place)),
        (by_rois, roipool.roi_align_backward_rois(grad, maps, rois, **place)),
    ):
        expected = theirs.astype(np.float64)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            gpu.to_host(mine).astype(np.float64), expected, rtol=0, atol=tolerance * scale
        )


def check_average(gpu: Backend, shape: tuple[int, ...], rois: Array, *place: Any) -> None:
    """Compare an average and its gradient with the CPU's."""
    rng = np.random.default_rng(12)
    maps = rng.normal(size=shape).astype(np.float32)
    expected = roipool.roi_align(maps, rois, *place)
    got = roipool.roi_align(gpu.to_device(maps), gpu.to_device(rois), *place)
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=4e-6)
    grad = rng.normal(size=expected.shape).astype(np.float32)
    expected = roipool.roi_align_backward(grad, rois, shape, *place[1:])
    got = roipool.roi_align_backward(gpu.to_device(grad), gpu.to_device(rois), shape, *place[1:])
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=4e-5)


@pytest.mark.parametrize("ratio", [0, 1])
def test_windows_wider_than_shared_memory(gpu: Backend, ratio: int) -> None:
    # The first has more columns than there is room for; the second reads few of its columns.
    rois = np.array([[0, 0, 0, 399, 11], [0, 5, 1, 180, 9], [0, 3, 2, 30, 12]], np.float32)
    check_average(gpu, (1, 9, 12, 400), rois, (3, 5), 1.0, ratio)


def test_more_boxes_than_threads(gpu: Backend) -> None:
    rng = np.random.default_rng(13)
    corners = np.sort(rng.uniform(-2, 22, (700, 2, 2)), axis=1).reshape(700, 4)
    rois = np.column_stack([rng.integers(0, 2, 700), corners]).astype(np.float32)
    check_average(gpu, (2, 5, 19, 21), rois, (9, 11), 1.0, 2)


@every_layout
@real_dtypes
@pytest.mark.parametrize("wide", [False, True])
def test_many_winners_of_one_cell(gpu: Backend, dtype: Any, layout: str, wide: bool) -> None:
    # More boxes than lanes, some of them of another image, and maps of several runs of cells.
    shape, size, count = (2, 11, 110, 90), (3, 5), 70
    rng = np.random.default_rng(15)
    rois = np.column_stack([rng.integers(0, 2, count), np.zeros((count, 4))]).astype(np.float32)
    cells = rng.choice([-1, 0, 17, 8189, 8190, 9899], (count, shape[1], *size))
    argmax = in_layout(cells.astype(np.int64 if wide else np.int32), layout)
    grad = in_layout(rng.normal(size=cells.shape).astype(dtype), layout)
    place: dict[str, Any] = {"input_shape": shape_in_layout(shape, layout), "layout": layout}
    got = roipool.roi_pool_backward(*map(gpu.to_device, (grad, argmax, rois)), **place)
    expected = roipool.roi_pool_backward(grad, argmax, rois, **place)
    np.testing.assert_array_equal(gpu.to_host(got), expected)  # the sums are in the same order


@pytest.mark.gpu
@every_layout
def test_maps_beyond_32_bits(layout: str) -> None:
    import cupy

    if cupy.cuda.Device().mem_info[0] < 32 * 2**30:
        pytest.skip("needs 32 GiB of free GPU memory")
    side, window, channels = 8192, 192, 17
    rng = np.random.default_rng(16)
    near = in_layout(rng.integers(-99, 99, (1, 1, window, window)).astype(np.float16), layout)
    rois = np.array([[0, 100, 150, 190, 191.5], [0, 180, 1, 191, 191]], np.float32)
    moved = cupy.asarray(rois + np.array([1, *[side - window] * 4], np.float32))
    # The last image's last channel, in the last rows and columns.
    maps = cupy.zeros(shape_in_layout((2, channels, side, side), layout), np.float16)
    grad = cupy.zeros(shape_in_layout((2, channels, 7, 7), layout), np.float16)
    far = (slice(1, None), *[slice(-window, None)] * 2)
    corner = (far[0], slice(-1, None), *far[1:]) if layout == "NCHW" else (*far, slice(-1, None))
    last = (slice(None), slice(-1, None)) if layout == "NCHW" else (..., slice(-1, None))
    maps[corner], grad[last] = cupy.asarray(near), 1

    def everything(maps: Any, grad: Any, rois: Any) -> tuple[list[Any], list[Any]]:
        place: dict[str, Any] = {"layout": layout}
        pooled, cells = roipool.roi_pool(maps, rois, 7, return_argmax=True, **place)
        highest = roipool.roi_align(maps, rois, 7, 1.0, 2, mode="max", **place)
        average = roipool.roi_align(maps, rois, 7, **place)
        by_cells = roipool.roi_pool_backward(grad, cells, rois, maps.shape, **place)
        return [pooled, highest, average], [
            by_cells, roipool.roi_align_backward(grad, rois, maps.shape, **place)
        ]  # fmt: skip

    ones = np.ones(shape_in_layout((2, 1, 7, 7), layout), np.float16)
    for got, expected, place, atol in zip(
        everything(maps, grad, moved), everything(near, ones, rois), (last, corner), (1, 0.1),
        strict=True,
    ):  # fmt: skip
        for mine, theirs in zip(got, expected, strict=True):
            # float32 places samples less finely there.
            np.testing.assert_allclose(mine[place].get(), theirs, rtol=0, atol=atol)
            assert int(cupy.count_nonzero(mine)) == int(cupy.count_nonzero(mine[place]))


# ---- Boxes of no image


BAD_IMAGES: list[tuple[Any, list[float]]] = [
    (np.int8, [-1, 2, 7]),
    (np.uint64, [2, 2**63]),
    (np.float16, [-1, 2, 0.5, np.nan, np.inf]),
    (np.int32, [-1, 2, 7]),
    (np.int64, [-1, 2, 2**40]),
    (np.float32, [-1, 2, 0.5, 1.5, np.nan, np.inf, 1e30]),
    (np.float64, [-1, 2, 0.5, 1.0000001, np.nan, -np.inf, 1e300]),
]


@pytest.mark.parametrize(("kind", "numbers"), BAD_IMAGES, ids=lambda value: str(value))
@every_layout
def test_boxes_of_no_image_pool_nothing(
    gpu: Backend, layout: str, kind: Any, numbers: list[float]
) -> None:
    maps = in_layout(np.ones((2, 4, 6, 7), np.float32), layout)
    images = np.array([*numbers, 1], kind)
    boxes = np.tile(np.array([1, 1, 4, 5], np.float32), (len(images), 1))
    features, rois, indices = (gpu.to_device(array) for array in (maps, boxes, images))
    options: dict[str, Any] = {"batch_indices": indices, "layout": layout}
    whole = shape_in_layout((len(images), 4, 2, 2), layout)
    ones = gpu.to_device(np.ones(whole, np.float32))
    for mode in ("avg", "max"):
        pooled = roipool.roi_align(features, rois, 2, mode=mode, **options)
        assert not np.any(gpu.to_host(pooled)[:-1])
        assert np.all(gpu.to_host(pooled)[-1] == 1)
    pooled, winners = roipool.roi_pool(features, rois, 2, return_argmax=True, **options)
    assert not np.any(gpu.to_host(pooled)[:-1])
    assert np.all(gpu.to_host(winners)[:-1] == -1)
    crop = roipool.crop_and_resize(
        features, rois, indices, 2, extrapolation_value=3.0, layout=layout
    )
    assert np.all(gpu.to_host(crop)[:-1] == 3)
    valid = gpu.to_device(np.zeros(whole, np.int32))
    for gradient in (
        roipool.roi_align_backward(ones, rois, maps.shape, **options),
        roipool.roi_pool_backward(ones, valid, rois, maps.shape, **options),
    ):
        total = gpu.to_host(gradient)
        assert not np.any(total[0])
        assert total[1].sum() == 16
    slopes = gpu.to_host(roipool.roi_align_backward_rois(ones, features, rois, **options))
    assert not np.any(slopes[:-1])


def test_winners_that_do_not_exist_get_no_gradient(gpu: Backend) -> None:
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3]], np.float32))
    ones = gpu.to_device(np.ones((1, 1, 2, 2), np.float32))
    for numbers in ([-(2**31), 2**31 - 1, 36, -1], [2**62, -(2**62), 2**40, 36]):
        argmax = gpu.to_device(np.array(numbers).reshape(1, 1, 2, 2))
        pool = roipool.roi_pool_backward(ones, argmax, rois, (1, 1, 6, 6))
        align = roipool.roi_align_backward(
            ones, rois, (1, 1, 6, 6), 1.0, 2, mode="max", argmax=argmax
        )
        assert not np.any(gpu.to_host(pool))
        assert not np.any(gpu.to_host(align))


def test_debugging_checks_values(gpu: Backend) -> None:
    maps = gpu.to_device(np.ones((2, 1, 4, 4), np.float32))
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3], [2, 0, 0, 3, 3]], np.float32))
    roipool.roi_pool(maps, rois, 1)
    roipool.set_debug(True)
    try:
        with pytest.raises(ValueError, match=r"rois\[1, 0\] is 2\.0, but batch indices must be"):
            roipool.roi_pool(maps, rois, 1)
        assert roipool.roi_pool(maps, rois[:1], 1).shape == (1, 1, 1, 1)
        argmax = gpu.to_device(np.full((1, 1, 1, 1), 16))
        with pytest.raises(ValueError, match="argmax must be from -1 to 15"):
            roipool.roi_pool_backward(
                gpu.to_device(np.ones((1, 1, 1, 1), np.float32)), argmax, rois[:1], (2, 1, 4, 4)
            )
    finally:
        roipool.set_debug(False)


def test_set_debug_takes_a_bool() -> None:
    with pytest.raises(TypeError, match="enabled must be a bool, got 1"):
        roipool.set_debug(1)  # type: ignore[arg-type]


# ---- Forms of arguments


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_forms_of_rois(gpu: Backend, kind: Any) -> None:
    maps = gpu.to_device(np.random.default_rng(0).normal(size=(2, 3, 9, 8)).astype(np.float32))
    table = np.array([[0, 1, 2, 5.5, 6], [1, 0.5, 0, 7, 3], [1, 2, 2, 4, 8.25]], kind)
    expected = gpu.to_host(roipool.roi_align(maps, gpu.to_device(table), 2))
    on_gpu = gpu.to_device(table)
    wide = gpu.to_device(np.repeat(np.repeat(table, 2, axis=0), 3, axis=1))[::2, ::3]
    indices = table[:, 0].astype(np.int64)
    forms: list[dict[str, Any]] = [
        {"rois": wide},
        {"rois": [on_gpu[:1, 1:], on_gpu[1:, 1:]]},
        *(
            {"rois": on_gpu[:, 1:], "batch_indices": gpu.to_device(indices.astype(type_))}
            for type_ in (np.int8, np.uint16, np.int32, np.int64, np.float16, np.float32)
        ),
        {"rois": on_gpu[:, 1:], "batch_indices": gpu.to_device(np.repeat(indices, 2))[::2]},
    ]
    for form in forms:
        got = roipool.roi_align(maps, output_size=2, **form)
        np.testing.assert_array_equal(gpu.to_host(got), expected)


@every_layout
def test_any_strides_of_maps_and_out(gpu: Backend, layout: str) -> None:
    maps = np.random.default_rng(0).normal(size=(2, 8, 9, 8)).astype(np.float32)
    rois = gpu.to_device(np.array([[0, 1, 2, 5.5, 6], [1, 0.5, 0, 7, 3]], np.float32))
    expected = gpu.to_host(roipool.roi_align(gpu.to_device(in_layout(maps, layout)), rois, 2,
                                             layout=layout))  # fmt: skip
    # An address that is not a multiple of 16 bytes, and no C order.
    shifted = np.concatenate([np.zeros(1, np.float32), in_layout(maps, layout).ravel()])
    odd = gpu.to_device(shifted)[1:].reshape(in_layout(maps, layout).shape)
    back = gpu.to_device(np.ascontiguousarray(in_layout(maps, layout)[..., ::-1]))[..., ::-1]
    for features in (odd, back):
        for make in (
            lambda: gpu.to_device(np.zeros(expected.shape, np.float32)),
            lambda: gpu.to_device(np.zeros((2, *expected.shape[1:]), np.float32)[:, ::-1])[:, ::-1],
        ):
            out = make()
            got = roipool.roi_align(features, rois, 2, layout=layout, out=out)
            assert got is out
            np.testing.assert_array_equal(gpu.to_host(got), expected)


def test_mixed_kinds_are_refused(gpu: Backend) -> None:
    maps = np.ones((1, 1, 4, 4), np.float32)
    rois = np.array([[0, 0, 0, 3, 3]], np.float32)
    with pytest.raises(TypeError, match="features is on the GPU, rois is not"):
        roipool.roi_pool(gpu.to_device(maps), rois, 1)
    with pytest.raises(TypeError, match="features is on the GPU, rois is not"):
        roipool.roi_pool(gpu.to_device(maps), rois.tolist(), 1)
    with pytest.raises(TypeError, match="rois is on the GPU, features is not"):
        roipool.roi_pool(maps, gpu.to_device(rois), 1)
    with pytest.raises(TypeError, match="rois is not"):
        roipool.roi_pool(gpu.to_device(maps), [gpu.to_device(rois[:, 1:]), rois[:, 1:]], 1)
    with pytest.raises(TypeError, match="rois is on the GPU, features, rois is not"):
        roipool.roi_pool(maps, [rois[:, 1:], gpu.to_device(rois[:, 1:])], 1)
    with pytest.raises(TypeError, match="out is not"):
        roipool.roi_pool(
            gpu.to_device(maps), gpu.to_device(rois), 1, out=np.ones((1, 1, 1, 1), np.float32)
        )
    with pytest.raises(TypeError, match="spatial_scale must be a real number"):
        roipool.roi_pool(gpu.to_device(maps), gpu.to_device(rois), 1, gpu.to_device(np.float32(1)))


def test_wrong_arguments_are_refused_as_on_the_cpu(gpu: Backend) -> None:
    maps = gpu.to_device(np.ones((1, 1, 4, 4), np.float32))
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3]], np.float32))
    with pytest.raises(TypeError, match=r"features must have dtype .* got int64"):
        roipool.roi_pool(gpu.to_device(np.ones((1, 1, 4, 4), np.int64)), rois, 1)
    with pytest.raises(ValueError, match=r"rois must have shape .* got \(1, 3\)"):
        roipool.roi_pool(maps, rois[:, :3], 1)
    with pytest.raises(ValueError, match=r"batch_indices must have shape \(1,\)"):
        roipool.roi_pool(maps, rois[:, 1:], 1, batch_indices=rois[0])
    with pytest.raises(TypeError, match="argmax must be an integer array"):
        roipool.roi_pool_backward(maps[:, :, :1, :1], maps[:, :, :1, :1], rois, maps.shape)
    with pytest.raises(ValueError, match="out must have shape"):
        roipool.roi_pool(maps, rois, 1, out=maps)


def test_arrays_on_two_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = types.ModuleType("cupy")

    class ndarray:  # noqa: N801
        def __init__(self, number: int) -> None:
            self.device = types.SimpleNamespace(id=number)

    cupy.ndarray = ndarray  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(ValueError, match="on one GPU, got features on 0, rois on 1"):
        roipool.roi_pool(ndarray(0), ndarray(1), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on one GPU, got features on 0, rois on 0 and 1"):
        roipool.roi_pool(ndarray(0), [ndarray(0), ndarray(1)], 1)  # type: ignore[arg-type, list-item]


# ---- Nothing waits, nothing is launched without need


def calls(gpu: Backend) -> dict[str, tuple[Any, list[str]]]:
    """Return calls on float32 arrays, and what each launches."""
    maps = gpu.to_device(np.ones((2, 4, 8, 8), np.float32))
    rois = gpu.to_device(np.array([[0, 1, 1, 5, 6], [1, 0, 0, 7, 7]], np.float32))
    grad = gpu.to_device(np.ones((2, 4, 2, 2), np.float32))
    argmax = gpu.to_device(np.zeros((2, 4, 2, 2), np.int32))
    boxes, images = rois[:, 1:], rois[:, 0]
    shape = (2, 4, 8, 8)
    return {
        "roi_pool": (
            lambda: roipool.roi_pool(maps, rois, 2, return_argmax=True),
            ["plan_samples", "maximum_forward_winners"],
        ),
        "roi_pool_backward": (
            lambda: roipool.roi_pool_backward(grad, argmax, rois, shape),
            ["maximum_backward_cells"],
        ),
        "roi_align": (
            lambda: roipool.roi_align(maps, boxes, 2, batch_indices=images),
            ["plan_taps", "average_forward"],
        ),
        "roi_align max": (
            lambda: roipool.roi_align(maps, rois, 2, mode="max"),
            ["plan_samples", "maximum_forward"],
        ),
        "roi_align_backward": (
            lambda: roipool.roi_align_backward(grad, rois, shape),
            ["plan_taps", "average_backward"],
        ),
        "roi_align_backward max": (
            lambda: roipool.roi_align_backward(grad, rois, shape, mode="max", argmax=argmax),
            ["plan_samples", "maximum_backward"],
        ),
        "roi_align_backward_rois": (
            lambda: roipool.roi_align_backward_rois(grad, maps, rois),
            ["plan_sloped_taps", "average_backward_boxes"],
        ),
        "crop_and_resize": (
            lambda: roipool.crop_and_resize(maps, boxes, images, 2),
            ["reshape", "plan_taps", "average_forward"],
        ),
        "one array per image": (
            lambda: roipool.roi_align(maps, [boxes[:1], boxes[1:]], 2),
            ["setitem", "fill", "setitem", "fill", "plan_taps", "average_forward"],
        ),
    }


def test_nothing_is_read_back_and_launches_are_few() -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as cupy:
        for name, (call, expected) in calls(Backend("emulator")).items():
            cupy.launches.clear()
            with cupy.no_reads():
                call()
            assert cupy.launches == expected, name


@pytest.mark.gpu
def test_calls_can_be_captured_in_a_graph() -> None:
    import cupy

    def results(found: Any) -> tuple[Any, ...]:
        return found if isinstance(found, tuple) else (found,)

    for name, (call, _) in calls(Backend("cuda")).items():
        expected = results(call())  # compiles
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            call()  # fills the stream's part of CuPy's pool of memory
            stream.begin_capture()
            captured = results(call())
            graph = stream.end_capture()
            for result in captured:
                result.fill(7)
            graph.launch(stream)
        stream.synchronize()
        for got, wanted in zip(captured, expected, strict=True):
            np.testing.assert_array_equal(got.get(), wanted.get(), err_msg=name)


# ---- The edge to CuPy


def launch_text(gpu: Backend, body: str, *arrays: Any) -> None:
    """Run a text that includes call.h with int64 arrays a, b, c and a zeroed call."""
    backend = module_of(gpu)
    text = kernel_source(
        "cuda/call.h", storage="float", definition="roi_pool", channels_last=0, pack=1
    )
    parameters = ", ".join(f"long long* {name}" for name, _ in zip("abc", arrays, strict=False))
    text += f'extern "C" __global__ void check({parameters}, const roipool::Call call) {{'
    kernel = sys.modules["cupy"].RawKernel(text + body + "}\n", "check", backend.OPTIONS)
    with arrays[0].device:  # an emulated launch also compares the sizes of all arguments
        kernel((1,), (1,), (*arrays, np.zeros(1, backend.CALL_TYPE)))


def test_division_of_any_size(gpu: Backend) -> None:
    rng = np.random.default_rng(14)
    numbers, divisors = (rng.integers(0, 2**63, 500) >> rng.integers(0, 63, 500) for _ in range(2))
    divisors = np.maximum(divisors, 1)
    quotients = gpu.to_device(np.zeros(500, np.int64))
    launch_text(
        gpu, "for (int i = 0; i < 500; ++i) a[i] = roipool::divide(b[i], c[i]);",
        quotients, gpu.to_device(numbers), gpu.to_device(divisors),
    )  # fmt: skip
    np.testing.assert_array_equal(gpu.to_host(quotients), numbers // divisors)


def test_call_has_the_same_fields_on_both_sides(gpu: Backend) -> None:
    backend = module_of(gpu)
    fields = []
    for name, (type_, offset) in sorted(backend.CALL_TYPE.fields.items()):
        inner = type_.fields or {}
        fields += [(f"{name}.{part}", offset + at) for part, (_, at) in sorted(inner.items())]
        if not inner:
            fields.append((name, offset))
    lines = [
        f"a[{i}] = __builtin_offsetof(roipool::Call, {name});" for i, (name, _) in enumerate(fields)
    ]
    places = gpu.to_device(np.zeros(len(fields), np.int64))
    launch_text(gpu, "\n".join(lines), places)
    assert gpu.to_host(places).tolist() == [offset for _, offset in fields]


def test_without_cupy_the_extra_is_named() -> None:
    code = """
        import sys
        sys.modules["cupy"] = None
        import roipool
        try:
            import roipool._cuda
        except ImportError as error:
            print(error)
    """
    assert 'pip install "roipool[cuda12]"' in run_python(code).stdout


def test_without_a_device_the_driver_is_named() -> None:
    code = """
        import sys, types
        cupy = types.ModuleType("cupy")
        def count():
            raise RuntimeError("cudaErrorInsufficientDriver")
        cupy.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceCount=count))
        sys.modules["cupy"] = cupy
        import roipool
        try:
            import roipool._cuda
        except RuntimeError as error:
            print(error)
    """
    found = run_python(code).stdout
    assert "cudaErrorInsufficientDriver" in found
    assert "roipool[cuda12]" in found
