"""The CUDA kernels beyond one block, one warp, one tile and 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import (
    DTYPES,
    Array,
    both_layouts,
    every_form,
    in_layout,
    shape_in_layout,
)
from _support.compare import compute_type
from _support.crowds import Crowd

import roipool
from roipool import _cpu
from roipool._boxes import Regions
from roipool._cpu import rounded_up
from roipool._cuda import launch
from roipool._cuda.arguments import LEVEL_TYPE, Argument, AxisCall, CallArguments, Level, call_type
from roipool._cuda.partition import Limits, Sizes
from roipool._definitions import Definition, Depth
from roipool._request import Pooling

FEW = Limits(max_blocks=3, enough_blocks=1)


@every_form(0)
@pytest.mark.parametrize("shared_bytes", [Limits().shared_bytes, 0])
def test_few_blocks_do_all_the_work(
    gpu: Backend, dtype: Any, layout: Any, shared_bytes: int
) -> None:
    boxes = np.array([[1.5, 2, 30, 17], [3, 3, 4, 18.5], [9, 0, 22, 9]])
    pooling = Pooling(Definition("roi_align", aligned=True), (37, 5), layout)
    check_few_blocks(gpu, dtype, (2, 41, 19, 35), boxes, pooling, shared_bytes)


@every_form(0)
@pytest.mark.parametrize("shared_bytes", [Limits().shared_bytes, 0])
def test_few_blocks_do_all_the_work_on_volumes(
    gpu: Backend, dtype: Any, layout: Any, shared_bytes: int
) -> None:
    # Planes of 13 rows are no whole number of tiles.
    boxes = np.array([[1.5, 2, 1, 17, 12, 8], [3, 3, 0, 4, 9.5, 3], [9, 0, 2, 12, 9, 9]])
    depth = Depth(planes=7, bins=5, sampling=0, scale=0.8, row_scale=0.9)
    definition = Definition("roi_align", aligned=True, depth=depth)
    pooling = Pooling(definition, (5 * 3, 4), layout)
    check_few_blocks(gpu, dtype, (2, 41, 7 * 13, 19), boxes, pooling, shared_bytes)


def check_few_blocks(
    gpu: Backend,
    dtype: Any,
    map_shape: tuple[int, ...],
    boxes: Array,
    pooling: Pooling,
    shared_bytes: int,
) -> None:
    """Compare an average and its gradients with the CPU's; few blocks take all tasks in turn."""
    rng = np.random.default_rng(9)
    shape, layout = shape_in_layout(map_shape, pooling.layout), pooling.layout
    maps = rng.normal(size=shape).astype(dtype)
    regions = Regions(boxes.astype(compute_type(dtype)), np.array([1, 0, 1]))
    pooled_shape = (len(boxes), map_shape[1], *pooling.output_size)
    grad = rng.normal(size=shape_in_layout(pooled_shape, layout)).astype(dtype)
    pooled, back = np.empty_like(grad), np.empty_like(maps)
    _cpu.average([maps], regions, pooling, pooled)
    _cpu.average_backward(grad, regions, pooling, [back])
    by_boxes = _cpu.average_backward_boxes(grad, [maps], regions, pooling)

    engine, there = gpu.module, Regions(*map(gpu.to_device, regions[:2]))
    limits = FEW._replace(shared_bytes=shared_bytes)
    sizes = Sizes(*engine.sizes_of(dtype, there, pooling, shape), limits)
    maps, grad = gpu.to_device(maps), gpu.to_device(grad)
    tolerance = 8 * float(np.finfo(np.float32).eps if dtype.itemsize > 2 else 2**-8)
    for launches, inputs, expected in (
        (launch.average(sizes, False), [maps], pooled),
        (launch.average_backward(sizes, False), [grad], back),
        (launch.average_backward_boxes(sizes), [grad, maps], by_boxes),
    ):
        assert launches.engine.grid.blocks <= 3
        assert (launches.scratch > 0) == (launches.plan is not None or shared_bytes == 0)
        got = gpu.to_device(np.empty_like(expected))
        with there.boxes.device:
            engine.run(engine.kernels_of(launches), there, *inputs, got)
        exact = expected.astype(np.float64)
        np.testing.assert_allclose(
            gpu.to_host(got).astype(np.float64),
            exact,
            rtol=0,
            atol=tolerance * np.abs(exact).max(),
        )


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_small_multiprocessors_have_room_for_more_blocks(gpu: Backend, dtype: Any) -> None:
    """Half the sums of a warp; the bits are the same."""
    rng = np.random.default_rng(10)
    shape = (2, 41, 50, 70)
    maps = gpu.to_device(rng.normal(size=shape).astype(dtype))
    corners = np.array([[1.5, 2, 60, 47], [3, 3, 4, 18.5], [9, 0, 42, 49]])
    regions = Regions(*map(gpu.to_device, (corners.astype(compute_type(dtype)), np.arange(3) % 2)))
    found: dict[int, list[Array]] = {}
    for sampling in (0, 2):  # adaptive: windows may be as wide as the map
        definition = Definition("roi_align", sampling=(sampling, sampling))
        pooling = Pooling(definition, (7, 7))
        for kilobytes in (64, 100, 164, 228):
            limits = Limits(multiprocessor_bytes=kilobytes << 10)
            sizes = Sizes(*gpu.module.sizes_of(dtype, regions, pooling, shape), limits)
            launches = launch.average(sizes, False)
            blocks = limits.multiprocessor_bytes // (launches.engine.grid.shared + 1024)
            needs_room = 70 * 4 * sizes.real.itemsize > 2048 and sampling == 0
            assert blocks >= (1 if needs_room else 3 if kilobytes == 64 else 4)
            out = gpu.to_device(np.empty((3, 41, 7, 7), dtype))
            with regions.boxes.device:
                gpu.module.run(gpu.module.kernels_of(launches), regions, maps, out)
            found.setdefault(sampling, []).append(gpu.to_host(out))
    for results in found.values():
        for one in results[1:]:
            np.testing.assert_array_equal(one, results[0])


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
    # The first box has more columns than fit; the second reads few of its columns.
    rois = np.array([[0, 0, 0, 399, 11], [0, 5, 1, 180, 9], [0, 3, 2, 30, 12]], np.float32)
    check_average(gpu, (1, 9, 12, 400), rois, (3, 5), 1.0, ratio)


@both_layouts
def test_plans_beyond_shared_memory(gpu: Backend, layout: str) -> None:
    # An adaptive grid may have samples for every cell of 4100 columns.
    rng = np.random.default_rng(19)
    maps = rng.normal(size=shape_in_layout((1, 5, 2, 4100), layout)).astype(np.float32)
    rois = np.array([[0, 0, 0, 4099, 2], [0, 4000, 0, 4090, 1], [0, 7, 1, 9, 1.5]], np.float32)
    place: dict[str, Any] = {"layout": layout, "spatial_scale": 1.0}
    there = gpu.to_device(maps), gpu.to_device(rois)
    expected = roipool.roi_align(maps, rois, (2, 3), **place)
    got = roipool.roi_align(*there, (2, 3), **place)
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=4e-6)
    expected = roipool.roi_align(maps, rois, (2, 3), mode="max", return_argmax=True, **place)
    got = roipool.roi_align(*there, (2, 3), mode="max", return_argmax=True, **place)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(gpu.to_host(mine), theirs)
    grad = rng.normal(size=expected[0].shape).astype(np.float32)
    expected = roipool.roi_align_backward_rois(grad, maps, rois, **place)
    got = roipool.roi_align_backward_rois(gpu.to_device(grad), *there, **place)
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=1e-5, atol=1e-5)


def test_many_bins_on_narrow_maps(gpu: Backend) -> None:
    # More rows or columns of bins than are staged at once.
    rois = np.array([[0, 0, 0, 2, 179], [0, 0, 31, 1, 60.5]], np.float32)
    check_average(gpu, (1, 70, 180, 2), rois, (90, 1), 1.0, 2)
    check_average(gpu, (1, 70, 3, 200), rois[:, [0, 2, 1, 4, 3]], (1, 120), 1.0, 2)


def check_volumes(gpu: Backend, shape: tuple[int, ...], rois: Array, *place: Any) -> None:
    """Compare an average of volumes and its gradients with the CPU's."""
    rng = np.random.default_rng(20)
    given, at = (rng.normal(size=shape).astype(np.float32), rois), place[1:]
    there = [*map(gpu.to_device, given)]
    expected = roipool.roi_align_3d(*given, *place)
    got = roipool.roi_align_3d(*there, *place)
    np.testing.assert_allclose(gpu.to_host(got), expected, rtol=0, atol=4e-6)
    grad = rng.normal(size=expected.shape).astype(np.float32)
    expected = roipool.roi_align_3d_backward(grad, rois, shape, *at)
    got = roipool.roi_align_3d_backward(gpu.to_device(grad), there[1], shape, *at)
    np.testing.assert_allclose(
        gpu.to_host(got), expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )


def test_more_boxes_of_volumes_than_threads(gpu: Backend) -> None:
    rng = np.random.default_rng(21)
    ends = np.sort(rng.uniform(-2, 12, (300, 2, 3)), axis=1).reshape(300, 6)
    rois = np.column_stack([rng.integers(0, 2, 300), ends]).astype(np.float32)
    check_volumes(gpu, (2, 5, 9, 10, 11), rois, (2, 3, 2), 1.0, 2)


@pytest.mark.thorough
def test_more_bins_along_depth_than_16_bits_count(gpu: Backend) -> None:
    # A block lists all bins for each plane.
    rois = np.array([[0, 0, 0, 0, 1, 1, 6]], np.float32)
    check_volumes(gpu, (1, 1, 6, 1, 1), rois, (2**16 + 4, 1, 1), 1.0, 1)


@every_form(0, ("float32", "float64"))
@pytest.mark.thorough
def test_sums_are_the_same_however_work_is_divided(gpu: Backend, dtype: Any, layout: str) -> None:
    # Up to four channels to a thread, of which tiles have too few for all threads.
    rng = np.random.default_rng(18)
    corners = np.sort(rng.uniform(-2, 40, (20, 2, 2)), axis=1).reshape(20, 4)
    regions = Regions(*map(gpu.to_device, (corners.astype(dtype), rng.integers(0, 2, 20))))
    grad = rng.normal(size=(20, 132, 14, 14)).astype(dtype)
    pooling = Pooling(Definition("roi_align", 0.9, (2, 2), aligned=True), (14, 14), layout)

    def back(channels: int, enough_tiles: int) -> tuple[int, Array]:
        values = gpu.to_device(np.ascontiguousarray(in_layout(grad[:, :channels], layout)))
        shape = shape_in_layout((2, channels, 37, 41), layout)
        out = gpu.to_device(np.empty(shape, dtype))
        limits = Limits(enough_tiles=enough_tiles)
        sizes = Sizes(*gpu.module.sizes_of(out.dtype, regions, pooling, shape), limits)
        launches = launch.average_backward(sizes, enough_tiles == 1)
        with regions.boxes.device:
            gpu.module.run(gpu.module.kernels_of(launches), regions, values, out)
        actual = gpu.to_host(out) if layout == "NCHW" else np.moveaxis(gpu.to_host(out), -1, 1)
        return dict(launches.engine.defines)["pack"], actual

    pack, whole = back(132, 1)
    assert pack == (4 if dtype == np.float32 else 1)
    for channels, enough in ((1, 1000), (5, 1000), (33, 1000), (70, 1000), (70, 1), (131, 1)):
        np.testing.assert_array_equal(back(channels, enough)[1], whole[:, :channels])


# With how many bins tiles are not crowded. Without any, crowded tiles are more than portions.
CROWDS: dict[str, tuple[int, dict[str, Any]]] = {
    "maps": (20, {}),
    "every tile": (0, {}),
    "pyramid": (20, {"levels": 3}),
    "volumes": (20, {"is_of_volumes": True}),
    "more boxes than a block lists": (20, {"boxes": 1300, "size": (2, 1), "channels": 2}),
}


RARE_CROWDS = CROWDS.keys() - {"maps", "volumes"}


@every_form(0)
@pytest.mark.parametrize(
    "of",
    [
        "maps",
        "volumes",
        *(pytest.param(of, marks=pytest.mark.thorough) for of in sorted(RARE_CROWDS)),
    ],
)
def test_blocks_share_crowded_tiles(gpu: Backend, dtype: Any, layout: Any, of: str) -> None:
    crowd, options = CROWDS[of]
    case = Crowd.of(**{"boxes": 90, **options})
    tolerance = 8 * float(np.finfo(np.float32).eps if dtype.itemsize > 2 else 2**-8)
    apart = case.on_gpu(gpu, dtype, layout, Limits(crowd=10**6))
    shared = case.on_gpu(gpu, dtype, layout, Limits(crowd=crowd))
    in_turn = case.on_gpu(gpu, dtype, layout, Limits(crowd=crowd, max_blocks=3))
    other = case.on_gpu(gpu, dtype, "NHWC" if layout == "NCHW" else "NCHW", Limits(crowd=crowd))
    for number, expected in enumerate(case.on_cpu(dtype)):
        exact = expected.astype(np.float64)
        for got in (apart[number], shared[number]):
            np.testing.assert_allclose(
                got.astype(np.float64), exact, rtol=0, atol=tolerance * np.abs(exact).max()
            )
        np.testing.assert_array_equal(in_turn[number], shared[number])
        np.testing.assert_array_equal(other[number], shared[number])
    if dtype.itemsize > 2:  # sums of portions are rounded
        assert np.any(apart[0] != shared[0])


def test_more_boxes_than_threads(gpu: Backend) -> None:
    rng = np.random.default_rng(13)
    corners = np.sort(rng.uniform(-2, 22, (700, 2, 2)), axis=1).reshape(700, 4)
    rois = np.column_stack([rng.integers(0, 2, 700), corners]).astype(np.float32)
    check_average(gpu, (2, 5, 19, 21), rois, (3, 4), 1.0, 2)


@both_layouts
@pytest.mark.parametrize(
    ("dtype", "wide"), [("float32", False), ("float32", True), ("float64", True)]
)
def test_many_bins_with_one_argmax(gpu: Backend, dtype: str, layout: str, wide: bool) -> None:
    # More boxes than lanes, of two images, and maps of several runs of cells: of 4851 in NCHW, of
    # 971 in NHWC. Of 32 values some 13 are of one cell, more than a lane gathers.
    shape, size, count = (2, 5, 109, 89), (3, 5), 70
    rng = np.random.default_rng(15)
    rois = np.column_stack([rng.integers(0, 2, count), np.zeros((count, 4))]).astype(np.float32)
    numbers, shares = [-1, 0, 17, 511, 970, 971, 4850, 4851, 9700], np.array([1, 6, *[1] * 7]) / 14
    cells = rng.choice(numbers, (count, shape[1], *size), p=shares)
    argmax = in_layout(cells.astype(np.int64 if wide else np.int32), layout)
    grad = in_layout(rng.normal(size=cells.shape).astype(dtype), layout)
    place: dict[str, Any] = {"input_shape": shape_in_layout(shape, layout), "layout": layout}
    got = roipool.roi_pool_backward(*map(gpu.to_device, (grad, argmax, rois)), **place)
    expected = roipool.roi_pool_backward(grad, argmax, rois, **place)
    np.testing.assert_array_equal(gpu.to_host(got), expected)  # the sums are in the same order


@both_layouts
def test_unpooling_two_channels_at_once_and_one(gpu: Backend, layout: str) -> None:
    """Small maps leave room for the sums of two maps; there are more boxes than a block lists."""
    rng = np.random.default_rng(16)
    for channels, size, count, most in (
        (1, (2, 2), 40, 3),
        (2, (1, 1), 1200, 3),
        (3, (5, 8), 9, 60),
        (12, (3, 4), 33, 1),
    ):
        rois = np.column_stack([rng.integers(0, 2, count), np.zeros((count, 4))])
        argmax = rng.integers(-1, most, (count, channels, *size)).astype(np.int32)
        grad = rng.normal(size=argmax.shape).astype(np.float32)
        grad, argmax = in_layout(grad, layout), in_layout(argmax, layout)
        shape = shape_in_layout((2, channels, 6, 10), layout)
        place: dict[str, Any] = {"input_shape": shape, "layout": layout}
        rois = rois.astype(np.float32)
        got = roipool.roi_pool_backward(*map(gpu.to_device, (grad, argmax, rois)), **place)
        expected = roipool.roi_pool_backward(grad, argmax, rois, **place)
        # Warps add their sums in the end, so that the order is not the CPU's.
        magnitude = roipool.roi_pool_backward(np.abs(grad), argmax, rois, **place)
        difference = np.abs(gpu.to_host(got) - expected)
        assert np.all(difference <= 16 * np.finfo(np.float32).eps * magnitude)


def test_launches_are_for_few_numbers_of_boxes() -> None:
    rounded = [rounded_up(boxes) for boxes in range(10_000)]
    assert rounded[:17] == list(range(17))
    assert all(n <= r <= n + max(n // 8, 1) for n, r in enumerate(rounded))
    assert len(set(rounded)) < 100


def sizes_of(shape: tuple[int, ...], bins: tuple[int, int]) -> Sizes:
    """Return the numbers of a call on two boxes."""
    f4, pooling = np.dtype(np.float32), Pooling(Definition("roi_align", sampling=(1, 1)), bins)
    return Sizes(f4, 2, (16, 4), np.dtype(np.int64), 8, pooling, (shape,))


def test_numbers_beyond_32_bits() -> None:
    """The type that counts a box's bins is wide enough, and too many bins are rejected."""
    many, maps = (46342, 46342), (1, 3, 8, 8)
    for bins, offset in (((7, 7), "int"), (many, "wide_int")):
        texts = dict(launch.average(sizes_of(maps, bins), False).engine.defines)
        assert texts["offset"] == offset
    with pytest.raises(ValueError, match="bins at most"):
        launch.unpool(sizes_of(maps, many), False)
    with pytest.raises(ValueError, match="rows and columns"):
        launch.average(sizes_of((1, 1, 1, 2**31), (7, 7)), False)


def test_an_argument_is_a_structure_without_fields() -> None:
    """CuPy would make NumPy describe the fields at every launch."""
    axis = AxisCall(7, 2)
    levels = (Level(9, 8, 0.5), Level(5, 4, 0.25, first_tile=3))
    call = CallArguments(2, 64, 128, 5, 1, 5, axis, axis, tasks=256, wide_argmax=1, levels=levels)
    kind = call_type(2)
    for boxes, tasks_of_box, tasks in ((100, 2, 200), (128, 0, 256)):
        made = Argument(call, tasks_of_box).for_boxes(boxes, [2**40, 2**41])
        assert (made.size, made.dtype.names) == (1, None)
        read = made.view(kind)
        assert (read["boxes"][0], read["tasks"][0]) == (boxes, tasks)
        assert read["levels"]["address"].tolist() == [[2**40, 2**41]]
        expected = Argument(call._replace(boxes=boxes, tasks=tasks), 0).for_boxes(boxes).view(kind)
        read["levels"]["address"] = 0
        assert read.tobytes() == expected.tobytes()
        names = [name for name in LEVEL_TYPE.names or () if name != "address"]
        actual = [{name: level[name].item() for name in names} for level in read["levels"][0]]
        assert actual == [{name: getattr(level, name) for name in names} for level in levels]
        assert read["rows"].tolist() == [tuple(axis)]


def test_a_new_number_of_boxes_finds_its_launches(gpu: Backend) -> None:
    rng = np.random.default_rng(17)
    maps = gpu.to_device(rng.normal(size=(1, 3, 9, 8)).astype(np.float32))
    corners = np.sort(rng.uniform(-2, 11, (129, 2, 2)), axis=1).reshape(129, 4)
    rois = np.column_stack([np.zeros(129), corners]).astype(np.float32)
    first = gpu.to_host(roipool.roi_align(maps, gpu.to_device(rois), 2))
    kept = gpu.module.kernels_for
    misses = kept.cache_info().misses
    for boxes in (130, 137, 144):
        more = np.resize(rois, (boxes, 5))
        actual = gpu.to_host(roipool.roi_align(maps, gpu.to_device(more), 2))
        np.testing.assert_array_equal(actual, np.resize(first, actual.shape))
    assert kept.cache_info().misses == misses


@pytest.mark.gpu
@both_layouts
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
            by_cells,
            roipool.roi_align_backward(grad, rois, maps.shape, **place),
        ]

    ones = np.ones(shape_in_layout((2, 1, 7, 7), layout), np.float16)
    for got, expected, place, atol in zip(
        everything(maps, grad, moved),
        everything(near, ones, rois),
        (last, corner),
        (1, 0.1),
        strict=True,
    ):
        for mine, theirs in zip(got, expected, strict=True):
            # float32 places samples less finely there.
            np.testing.assert_allclose(mine[place].get(), theirs, rtol=0, atol=atol)
            assert int(cupy.count_nonzero(mine)) == int(cupy.count_nonzero(mine[place]))
