"""Position-sensitive averages on a GPU: the CPU's, and a choice from those of all channels.

In the second, kernels of other averages pool each channel for all bins, and of each bin
the channel of its own group is kept: sums are in the same order, so that every bit is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import Array, both_layouts, every_form, in_layout, to_nchw
from _support.compare import assert_same_bits, compute_type

import roipool
from roipool import _cpu
from roipool._boxes import Regions
from roipool._cuda import launch
from roipool._cuda.partition import Limits, Sizes
from roipool._definitions import Definition
from roipool._request import Pooling

FORWARD = roipool.ps_roi_align, roipool.ps_roi_pool
# Bins, groups and channels: one bin to a group, several, groups without bins, many channels.
CASES = [
    ((3, 2), (0, 0), 5),
    ((3, 4), (2, 3), 9),
    ((2, 2), (3, 5), 2),
    ((4, 1), (4, 2), 40),
    ((2, 3), (1, 1), 3),
]
every_case = pytest.mark.parametrize(("size", "groups", "channels"), CASES, ids=str)


def boxes_of(images: int, count: int = 40) -> Array:
    """Return boxes inside and outside of maps, some of NaN, empty, reversed, or of no image."""
    rng = np.random.default_rng(1)
    corners = np.sort(rng.uniform(-3, 24, (count, 2, 2)), axis=1).reshape(count, 4)
    corners[3], corners[4, 1] = np.nan, np.inf
    corners[5, 2:], corners[6] = corners[5, :2], corners[6, [2, 3, 0, 1]]
    return np.column_stack([rng.integers(0, images, count), corners])


def maps_of(shape: tuple[int, ...], dtype: Any, layout: str, seed: int = 2) -> Array:
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return np.ascontiguousarray(in_layout(values, layout))


def assert_near(found: Array, expected: Array) -> None:
    exact = expected.astype(np.float64)
    eps = 2.0**-7 if expected.dtype.itemsize == 2 else 16 * float(np.finfo(expected.dtype).eps)
    allowed = eps * max(float(np.abs(exact).max(initial=0)), 1)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0, atol=allowed)


def check_call(gpu: Backend, dtype: Any, layout: str, size: Any, groups: Any, count: int) -> None:
    """Compare both operations and their gradients with the CPU's."""
    down, across = groups[0] or size[0], groups[1] or size[1]
    maps = maps_of((2, count * down * across, 19, 21), dtype, layout)
    rois = boxes_of(2).astype(compute_type(dtype))
    there, boxes = gpu.to_device(maps), gpu.to_device(rois)
    options: dict[str, Any] = {"group_size": groups, "layout": layout, "spatial_scale": 0.9}
    for forward in FORWARD:
        expected = forward(maps, rois, size, **options)
        assert_near(gpu.to_host(forward(there, boxes, size, **options)), expected)
        backward = getattr(roipool, f"{forward.__name__}_backward")
        grad = np.random.default_rng(3).normal(size=expected.shape).astype(dtype)
        gradient = gpu.to_device(grad)
        found = gpu.to_host(backward(gradient, boxes, maps.shape, **options))
        assert_near(found, backward(grad, rois, maps.shape, **options))
        again = gpu.to_host(backward(gradient, boxes, maps.shape, **options))
        assert_same_bits(again, found)
    by_boxes = roipool.ps_roi_align_backward_rois(grad, maps, rois, **options)
    found = gpu.to_host(roipool.ps_roi_align_backward_rois(gradient, there, boxes, **options))
    assert_near(found, by_boxes)


@every_form(0)
def test_averages_are_the_cpus(gpu: Backend, dtype: Any, layout: Any) -> None:
    check_call(gpu, dtype, layout, *CASES[1])


@every_case
@both_layouts
def test_groups_of_bins(gpu: Backend, layout: str, size: Any, groups: Any, channels: int) -> None:
    check_call(gpu, np.dtype(np.float32), layout, size, groups, channels)


def own_channels(size: tuple[int, int], groups: tuple[int, int], channels: int) -> Array:
    """Return the channel of the maps of each value of a box: (channels, rows, columns)."""
    c, i, j = np.ogrid[:channels, : size[0], : size[1]]
    return (c * groups[0] + i * groups[0] // size[0]) * groups[1] + j * groups[1] // size[1]


@both_layouts
def test_bits_are_those_of_all_channels(gpu: Backend, layout: Any) -> None:
    size, groups, channels = (3, 4), (2, 3), 9
    maps = maps_of((2, channels * 6, 19, 21), np.float32, layout)
    rois = gpu.to_device(boxes_of(2).astype(np.float32))
    features, options = gpu.to_device(maps), {"layout": layout}
    own = own_channels(size, groups, channels)
    rows, columns = np.ogrid[: size[0], : size[1]]
    pooled = roipool.ps_roi_align(features, rois, size, 0.9, 2, group_size=groups, **options)
    everything = to_nchw(
        gpu.to_host(roipool.roi_align(features, rois, size, 0.9, 2, **options)), layout
    )
    assert_same_bits(to_nchw(gpu.to_host(pooled), layout), everything[:, own, rows, columns])

    grad = np.random.default_rng(3).normal(size=(40, channels, *size)).astype(np.float32)
    spread = np.zeros(everything.shape, np.float32)
    spread[:, own, rows, columns] = grad
    grad, spread = (np.ascontiguousarray(in_layout(one, layout)) for one in (grad, spread))
    place = (rois, maps.shape, 0.9, 2)
    found = roipool.ps_roi_align_backward(gpu.to_device(grad), *place, group_size=groups, **options)
    expected = roipool.roi_align_backward(gpu.to_device(spread), *place, **options)
    assert_same_bits(gpu.to_host(found), gpu.to_host(expected))


@both_layouts
@pytest.mark.parametrize(
    "shared_bytes", [0, pytest.param(Limits().shared_bytes, marks=pytest.mark.thorough)]
)
def test_few_blocks_and_wide_offsets(gpu: Backend, layout: Any, shared_bytes: int) -> None:
    """Fewer blocks than tiles, plans in scratch memory, offsets as of maps beyond 32 bits."""
    maps = maps_of((2, 45 * 6, 19, 35), np.float32, layout)
    table = boxes_of(2).astype(np.float32)
    regions = Regions(np.ascontiguousarray(table[:, 1:]), table[:, 0].astype(np.int64))
    definition = Definition("roi_align", 0.9, (2, 2), aligned=True, group_size=(0, 0))
    pooling = Pooling(definition, (3, 2), layout)
    grad = maps_of((len(table), 45, 3, 2), np.float32, layout, 3)
    pooled, back = np.empty_like(grad), np.empty_like(maps)
    _cpu.average([maps], regions, pooling, pooled)
    _cpu.average_backward(grad, regions, pooling, [back])
    by_boxes = _cpu.average_backward_boxes(grad, [maps], regions, pooling)
    engine, there = gpu.module, Regions(*map(gpu.to_device, regions[:2]))
    limits = Limits(max_blocks=3, enough_blocks=1, shared_bytes=shared_bytes)
    sizes = Sizes(*engine.sizes_of(maps.dtype, there, pooling, maps.shape), limits)
    maps, grad = gpu.to_device(maps), gpu.to_device(grad)
    for launches, inputs, expected in (
        (launch.average(sizes, False), [maps], pooled),
        (launch.average_backward(sizes, False), [grad], back),
        (launch.average_backward_boxes(sizes), [grad, maps], by_boxes),
    ):
        defines = {**dict(launches.engine.defines), "offset": "wide_int"}
        wide = launches._replace(engine=launches.engine._replace(defines=tuple(defines.items())))
        got = gpu.to_device(np.empty_like(expected))
        with there.boxes.device:
            engine.run(engine.kernels_of(wide), there, *inputs, got)
        assert_near(gpu.to_host(got), expected)


@both_layouts
def test_no_boxes_and_boxes_of_no_image(gpu: Backend, layout: Any) -> None:
    shape = in_layout(np.empty((2, 8, 9, 10)), layout).shape
    maps = gpu.to_device(np.ones(shape, np.float32))
    for rois in (np.empty((0, 5)), [[7, 0, 0, 5, 5], [-1, 0, 0, 5, 5]]):
        boxes = gpu.to_device(np.array(rois, np.float32))
        pooled = roipool.ps_roi_pool(maps, boxes, 2, layout=layout)
        assert not gpu.to_host(pooled).any()
        back = roipool.ps_roi_pool_backward(pooled + 1, boxes, shape, layout=layout)
        assert not gpu.to_host(back).any()
