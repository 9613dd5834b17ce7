"""Plans on a GPU: the same decisions as on the CPU, and within their bound, for hostile boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support import cuda_texts, emulator
from _support.backends import Backend
from _support.catalogue import DTYPES, Array
from _support.compare import compute_type
from _support.loops import each

from roipool import _cpu
from roipool._boxes import Regions
from roipool._cuda import launch
from roipool._cuda.partition import Grid, Sizes
from roipool._definitions import OPS, TRAITS, Definition
from roipool._request import MaxRules, Pooling


def hostile_boxes(seed: int, count: int = 60) -> Array:
    """Return boxes of one image: on cells and halves, far away, tiny, reversed, or not finite."""
    rng = np.random.default_rng(seed)
    quarters = rng.integers(-16, 64, (count, 4)) / 4
    normal = rng.normal(6, 8, (count, 4))
    far = rng.choice([-1, 1], (count, 4)) * 10.0 ** rng.uniform(2, 12, (count, 4))
    ends = rng.choice([0, 1, 0.5, -0.5, 8, 9, np.nan, np.inf, -np.inf, 1e-30], (count, 4))
    kind = rng.integers(0, 4, (count, 4))
    return np.choose(kind, [quarters, normal, far, ends])


def placed(name: str) -> list[Definition]:
    """Return a definition with the options that determine its samples."""
    kind = TRAITS[name].kind
    if kind == "crop":
        return [Definition(name)]
    if kind != "grid":
        return [Definition(name, 0.6)]
    ratios, alignments = ((0, 1, 2, 20), (True, False)) if name in OWN else ((0, 2), (True,))
    return [
        Definition(name, 0.6, (ratio, ratio), aligned) for ratio in ratios for aligned in alignments
    ]


# The core's definitions; those of other implementations differ by template arguments and branches.
OWN = {variant.definition for op in OPS.values() for variant in op.variants.values()}
MAXIMA = [definition for name in cuda_texts.MAXIMA for definition in placed(name)]
AVERAGES = [definition for name in cuda_texts.AVERAGES for definition in placed(name)]
# Definitions whose argmax is a sample with a position; ONNX's maximum is over weighted cells.
OF_SAMPLES = [
    definition
    for definition in MAXIMA
    if TRAITS[definition.name].kind != "cells" and definition.name != "onnx_roi_align_max"
]


def is_decided(gpu: Backend, dtype: np.dtype[Any], **_: Any) -> bool:
    """Return whether decisions are compared in a type by default; nightly.sh compares all."""
    return dtype == np.float32 or gpu.name != "emulator" or gpu.everything


real_decisions = each(is_decided, dtype={name: DTYPES[name] for name in ("float32", "float64")})


def regions_of(definition: Definition, dtype: Any, seed: int) -> Regions:
    boxes = hostile_boxes(seed)
    if TRAITS[definition.name].kind == "crop":
        boxes = boxes / 8
    with np.errstate(over="ignore"):
        real = boxes.astype(compute_type(dtype))
    return Regions(np.ascontiguousarray(real), np.zeros(len(boxes), np.int64))


def on(gpu: Backend, regions: Regions) -> Regions:
    return Regions(*map(gpu.to_device, regions[:2]))


def pooling_of(definition: Definition, cells: bool = False, **rules: Any) -> Pooling:
    """Return a request for 3 by 2 bins; an empty one is -7."""
    every = MaxRules(argmax_is_cell=cells, **rules)
    return Pooling(definition, (3, 2), empty_value=-7.0, rules=every)


@real_decisions
@pytest.mark.parametrize("definition", MAXIMA, ids=str)
def test_argmax_is_the_cpus(gpu: Backend, definition: Definition, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    maps = np.round(rng.normal(size=(1, 3, 9, 11)) * 2).astype(dtype)  # with ties
    maps[rng.random(maps.shape) < 0.1] = np.nan
    regions = regions_of(definition, dtype, 2)
    outside_is_zero = TRAITS[definition.name].kind == "grid"
    for restarts in (False, True):
        pooling = pooling_of(
            definition,
            TRAITS[definition.name].kind == "cells",
            outside_is_zero=outside_is_zero,
            nan_restarts=restarts,
        )
        expected = np.empty((len(regions.boxes), 3, 3, 2), dtype)
        argmax = _cpu.maximum(maps, regions, pooling, expected, return_argmax=True)
        got = gpu.to_device(np.empty_like(expected))
        there = on(gpu, regions)
        with there.boxes.device:
            actual = gpu.module.maximum(
                gpu.to_device(maps), there, pooling, got, return_argmax=True
            )
        np.testing.assert_array_equal(gpu.to_host(actual), argmax)
        np.testing.assert_array_equal(gpu.to_host(got), expected)


@real_decisions
@pytest.mark.parametrize("definition", MAXIMA, ids=str)
def test_gradients_of_maxima_are_the_cpus(gpu: Backend, definition: Definition, dtype: Any) -> None:
    regions = regions_of(definition, dtype, 3)
    rng = np.random.default_rng(4)
    cells = TRAITS[definition.name].kind == "cells"
    name = definition.name.removesuffix("_gather").replace("caffe_roi_pool", "roi_pool")
    maps = rng.normal(size=(1, 3, 9, 11)).astype(dtype)
    grad = rng.normal(size=(len(regions.boxes), 3, 3, 2)).astype(dtype)
    forward = pooling_of(definition._replace(name=name), cells)
    argmax = _cpu.maximum(maps, regions, forward, np.empty_like(grad), return_argmax=True)
    pooling = pooling_of(definition, cells)
    expected, got = np.empty_like(maps), gpu.to_device(np.empty_like(maps))
    _cpu.maximum_backward(grad, argmax, regions, pooling, expected)
    arrays = [gpu.to_device(array) for array in (grad, argmax)]
    there = on(gpu, regions)
    with there.boxes.device:
        gpu.module.maximum_backward(*arrays, there, pooling, got)
    np.testing.assert_array_equal(gpu.to_host(got), expected)


@real_decisions
@pytest.mark.parametrize("definition", AVERAGES, ids=str)
def test_averages_are_the_cpus(gpu: Backend, definition: Definition, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    maps = rng.normal(size=(1, 3, 9, 11)).astype(dtype)
    maps[0, 2][rng.random((9, 11)) < 0.2] = np.nan  # reveals which cells are read
    regions, pooling = regions_of(definition, dtype, 6), pooling_of(definition)
    expected = np.empty((len(regions.boxes), 3, 3, 2), dtype)
    got = gpu.to_device(np.empty_like(expected))
    _cpu.average([maps], regions, pooling, expected)
    there = on(gpu, regions)
    with there.boxes.device:
        gpu.module.average([gpu.to_device(maps)], there, pooling, got)
    atol = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=atol * 4)
    grad = rng.normal(size=expected.shape).astype(dtype)
    expected, got = np.empty_like(maps), gpu.to_device(np.empty_like(maps))
    _cpu.average_backward(grad, regions, pooling, [expected])
    with there.boxes.device:
        gpu.module.average_backward(gpu.to_device(grad), there, pooling, [got])
    if definition.name == "garden_crop":  # whose weights grow with the distance from the map
        atol *= np.abs(expected).max()
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=atol * 64)


@real_decisions
@pytest.mark.parametrize("definition", OF_SAMPLES, ids=str)
def test_positions_of_argmax_are_the_cpus(gpu: Backend, definition: Definition, dtype: Any) -> None:
    regions = regions_of(definition, dtype, 7)
    pooling, shape = pooling_of(definition, outside_is_zero=True), (1, 2, 9, 11)
    maps = np.random.default_rng(8).normal(size=shape).astype(dtype)
    out = np.empty((len(regions.boxes), 2, 3, 2), dtype)
    argmax = _cpu.maximum(maps, regions, pooling, out, return_argmax=True)
    expected = _cpu.argmax_positions(argmax, regions, pooling, shape)
    there = on(gpu, regions)
    numbers = _cpu.argmax_at(*expected, regions, pooling, shape)
    with there.boxes.device:
        got = gpu.module.argmax_positions(gpu.to_device(argmax), there, pooling, shape)
        back = gpu.module.argmax_at(*got, there, pooling, shape)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(gpu.to_host(mine), theirs)
    np.testing.assert_array_equal(gpu.to_host(back), numbers)


# ---- Plans


HEAD = np.dtype(
    [("image", np.int64)]
    + [
        (f"{axis}_{name}", np.int32)
        for axis in ("row", "column")
        for name in ("first", "last", "used")
    ]
)


def far_boxes(seed: int, count: int, size: int) -> Array:
    """Return boxes of various lengths around the map, whose samples move by rounding."""
    rng = np.random.default_rng(seed)
    before, after = (10.0 ** rng.uniform(0, 11, (count, 2)) for _ in range(2))
    inside = rng.uniform(-2, size + 2, (count, 2))
    low, high = inside - before, inside + after * rng.choice([0, 1], (count, 1))
    return np.hstack([low, high])


# Pairs of map size and number of bins.
LATIN: dict[tuple[int, int], Any] = {
    (1, 300): [],
    (6, 1): pytest.mark.thorough,
    (130, 7): pytest.mark.thorough,
}


def reserved_uncounted(
    kind: launch.PlanKind, definition: str, sampling: int, size: int, bins: int
) -> int:
    """Return how many entries kernels reserve for a fixed number of samples per bin, or 0."""
    traits = TRAITS[definition]
    samples = {"crop": 1, "grid": sampling * traits.samples_per_ratio}.get(traits.kind, 0)
    return samples * bins * (1 if kind is launch.SAMPLES else 2)


def with_room(*given: Any) -> int:
    """Return a larger capacity than that of plans, to measure how many entries they use.

    Kernels without room to reserve entries uncounted must count them, with this capacity, too.
    """
    capacity, uncounted = launch.plan_capacity(*given), reserved_uncounted(*given)
    room = 2 * capacity + 1000
    return min(room, uncounted) if uncounted >= capacity else room


@pytest.mark.parametrize(
    ("size", "bins"),
    [
        pytest.param(
            size,
            bins,
            id=f"{size}-{bins}",
            marks=LATIN.get((size, bins), pytest.mark.everything),
        )
        for size in (1, 6, 130)
        for bins in (1, 7, 300)
    ],
)
@pytest.mark.parametrize(
    ("kind", "definition"),
    [
        *((launch.SAMPLES, definition) for definition in MAXIMA),
        *((launch.BIN_TAPS, definition) for definition in AVERAGES),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_plans_fit_into_their_bound(
    kind: launch.PlanKind, definition: Definition, size: int, bins: int
) -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    boxes = np.vstack([hostile_boxes(10, 80), far_boxes(11, 80, size)])
    with np.errstate(over="ignore"):
        regions = Regions(boxes.astype(np.float32), np.zeros(len(boxes), np.int64))
    gpu = Backend("emulator")
    file = "average_backward" if kind is launch.BIN_TAPS else "maximum_backward"
    with emulator.active() as cupy:
        engine, there = gpu.module, on(gpu, regions)
        pooling = Pooling(definition, (bins, bins))
        shape = (1, 1, size, size)
        sizes = Sizes(*engine.sizes_of(np.dtype(np.float32), there, pooling, shape))
        launches = launch.planned_before(
            sizes, kind, file, launch.call_of(sizes), Grid(0, (1,)), capacity=with_room
        )
        scratch = cupy.empty(launches.scratch, np.uint8)
        with there.boxes.device:
            plan = engine.kernels_of(launches).plan
            plan.launch(len(boxes), *there[:2], engine.NULL, scratch)
    heads = scratch.get()[: len(boxes) * HEAD.itemsize].view(HEAD)
    for axis, sampling in zip(("row", "column"), definition.sampling, strict=True):
        used = int(heads[f"{axis}_used"].max())
        assert used < launch.plan_capacity(kind, definition.name, sampling, size, bins)
