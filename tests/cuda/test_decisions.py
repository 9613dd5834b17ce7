"""Plans on a GPU: the same decisions as on the CPU, and within their bound, for hostile boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.backends import Backend
from _support.catalogue import (
    Array,
    real_dtypes,
)
from _support.compare import compute_type

from roipool import _cpu, _cuda_work
from roipool._arguments import Regions
from roipool._definitions import Definition


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
    Definition("roi_align", 0.6, (ratio, ratio), aligned)
    for ratio in (0, 1, 2, 20)
    for aligned in (True, False)
] + [Definition("mmcv_roi_align", 0.6, (ratio, ratio), True) for ratio in (0, 2)]
CELLS = [
    "roi_pool", "roi_average_pool", "chainer_roi_average_pool", "mmcv_roi_pool",
    "caffe_roi_pool_gather",
]  # fmt: skip
CROPS = [
    "crop_bilinear", "crop_nearest", "tensorflow_crop_bilinear", "tensorflow_crop_nearest",
    "tensorflow_crop_gradient",
]  # fmt: skip
STEPS = ["caffe_roi_align", "mxnet_roi_align", "mxnet_roi_align_gather"]
MAXIMA = [
    *SAMPLED,
    *(Definition("onnx_roi_align_max", 0.6, (ratio, 1), True) for ratio in (0, 2)),
    *(Definition(name, 0.6) for name in (*CELLS, *STEPS)),
]
AVERAGES = [
    *SAMPLED,
    *(Definition(name, 0.6) for name in CELLS),
    *(Definition(name) for name in CROPS),
]


def regions_of(geometry: Definition, dtype: Any, seed: int) -> Regions:
    boxes = hostile_boxes(seed)
    if geometry.definition in CROPS:
        boxes = boxes / 8
    with np.errstate(over="ignore"):
        real = boxes.astype(compute_type(dtype))
    return Regions(np.ascontiguousarray(real), np.zeros(len(boxes), np.int64))


def on(gpu: Backend, regions: Regions) -> list[Any]:
    return [gpu.to_device(array) for array in regions]


def each(name: str, gpu: Backend) -> tuple[Any, Any]:
    """Return a function of both backends."""
    return getattr(_cpu, name), getattr(gpu.module, name)


@real_dtypes
@pytest.mark.parametrize("geometry", MAXIMA, ids=str)
def test_winners_are_the_cpus(gpu: Backend, geometry: Definition, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    maps = np.round(rng.normal(size=(1, 3, 9, 11)) * 2).astype(dtype)  # with ties
    maps[rng.random(maps.shape) < 0.1] = np.nan
    regions = regions_of(geometry, dtype, 2)
    cells = geometry.definition in CELLS
    host, device = each("maximum", gpu)
    options: dict[str, Any] = {
        "layout": "NCHW", "lowest": -np.inf, "empty_value": -7.0, "winner_is_cell": cells,
        "outside_is_zero": geometry.definition in ("roi_align", "mmcv_roi_align"),
        "return_argmax": True, "threads": 1, "out": None,
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
def test_gradients_of_winners_are_the_cpus(gpu: Backend, geometry: Definition, dtype: Any) -> None:
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
def test_averages_are_the_cpus(gpu: Backend, geometry: Definition, dtype: Any) -> None:
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
@pytest.mark.parametrize("geometry", [*SAMPLED, *(Definition(name, 0.6) for name in STEPS)], ids=str)
def test_positions_of_winners_are_the_cpus(gpu: Backend, geometry: Definition, dtype: Any) -> None:
    regions = regions_of(geometry, dtype, 7)
    shape = (1, 2, 9, 11)
    maps = np.random.default_rng(8).normal(size=shape).astype(dtype)
    _, winners = _cpu.maximum(
        maps, *regions, geometry, (3, 2), layout="NCHW", lowest=-np.inf, empty_value=0.0,
        winner_is_cell=False, outside_is_zero=True, return_argmax=True, threads=1, out=None,
    )  # fmt: skip
    expected = _cpu.locate(winners, *regions, geometry, shape, threads=1)
    there = on(gpu, regions)
    backend = gpu.module
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
    kind: _cuda_work.PlanKind, geometry: Definition, size: int, bins: int
) -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    boxes = np.vstack([hostile_boxes(10, 150), far_boxes(11, 150, size)])
    with np.errstate(over="ignore"):
        regions = Regions(boxes.astype(np.float32), np.zeros(len(boxes), np.int64))
    gpu = Backend("emulator")
    with emulator.active():
        backend = gpu.module
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
