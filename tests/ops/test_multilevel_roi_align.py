"""ROI align over a pyramid: one call pools each box from its map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, real_dtypes_thorough_on_the_emulator
from _support.catalogue import every_layout, in_layout
from _support.compare import compute_type
from _support.loops import each

import roipool
from roipool import _cpu, reference
from roipool._boxes import Regions
from roipool._definitions import Definition
from roipool._request import Pooling

SHAPES = ((2, 5, 17, 23), (2, 5, 9, 12), (2, 5, 5, 6), (2, 5, 1, 1))
SCALES = (1 / 2, 1 / 4, 1 / 8, 1 / 16)


def pyramid(dtype: Any, layout: str) -> list[np.ndarray[Any, Any]]:
    """Return maps of every level."""
    rng = np.random.default_rng(3)
    return [in_layout(rng.integers(-64, 64, shape) / 8, layout).astype(dtype) for shape in SHAPES]


def table(count: int = 19) -> np.ndarray[Any, Any]:
    """Return boxes of all sizes, some reversed or outside, and their images."""
    rng = np.random.default_rng(4)
    starts = rng.uniform(-9, 40, (count, 2))
    sides = 100 ** rng.uniform(-0.2, 1, (count, 2)) * rng.choice((1, 1, 1, -1), (count, 2))
    return np.column_stack([rng.integers(0, 2, count), starts, starts + sides])


def test_levels_at_their_limits() -> None:
    """The areas that separate levels are never 0, the area of an empty box."""
    table = np.array([[0, 0, side, side] for side in (0, 2.0**-120, 1, 1e9, 1e300, np.inf)])
    for options in ((-100, 100, 2.0**-100, 100), (-100, 100, 2.0**100, -100), (0, 60, 1, 0)):
        expected = reference.assign_levels(table, *options)
        assert roipool.assign_levels(table, *options).tolist() == expected.tolist()
        assert (expected[0], expected[-1]) == (0, options[1] - options[0])


@real_dtypes_thorough_on_the_emulator
@every_layout
@each(ratio=[0, 2])
def test_each_box_is_pooled_from_its_map(
    backend: Backend, layout: str, dtype: str, ratio: int
) -> None:
    boxes = table()
    levels = np.arange(len(boxes)) % 3  # the last map has no box
    options: dict[str, Any] = {"layout": layout, "aligned": False}
    maps = pyramid(dtype, layout)
    real = compute_type(maps[0].dtype)
    there = [backend.to_device(one) for one in maps]
    rois, own = backend.to_device(boxes.astype(real)), backend.to_device(levels)
    pooled = roipool.multilevel_roi_align(there, rois, (2, 3), SCALES, ratio, levels=own, **options)
    grad = np.random.default_rng(5).integers(-8, 8, pooled.shape).astype(dtype)
    upstream = backend.to_device(grad)
    shapes = [one.shape for one in maps]
    grads = roipool.multilevel_roi_align_backward(
        upstream, rois, shapes, SCALES, ratio, levels=own, **options
    )
    by_boxes = roipool.multilevel_roi_align_backward_rois(
        upstream, there, rois, SCALES, ratio, levels=own, **options
    )
    for level, scale in enumerate(SCALES):
        rows = np.flatnonzero(levels == level)
        part, part_grad = (backend.to_device(one[rows]) for one in (boxes.astype(real), grad))
        alone = roipool.roi_align(there[level], part, (2, 3), scale, ratio, **options)
        np.testing.assert_array_equal(
            backend.to_host(pooled)[rows], backend.to_host(alone), strict=True
        )
        gradient = roipool.roi_align_backward(
            part_grad, part, shapes[level], scale, ratio, **options
        )
        np.testing.assert_array_equal(
            backend.to_host(grads[level]), backend.to_host(gradient), strict=True
        )
        slopes = roipool.roi_align_backward_rois(
            part_grad, there[level], part, scale, ratio, **options
        )
        np.testing.assert_array_equal(
            backend.to_host(by_boxes)[rows], backend.to_host(slopes), strict=True
        )


def test_the_oracle(backend: Backend) -> None:
    boxes, maps = table(), pyramid(np.float64, "NCHW")
    levels = reference.assign_levels(boxes, 1, 4, 10, 2)
    assert set(levels.tolist()) == {0, 1, 2, 3}
    rois, there = backend.to_device(boxes), [backend.to_device(one) for one in maps]
    own = roipool.assign_levels(rois, 1, 4, 10, 2)
    np.testing.assert_array_equal(backend.to_host(own), levels)
    pooled = roipool.multilevel_roi_align(there, rois, 2, SCALES, 2, levels=own)
    expected = reference.multilevel_roi_align(maps, boxes, 2, SCALES, 2, levels=levels)
    np.testing.assert_allclose(backend.to_host(pooled), expected, rtol=0, atol=1e-12)
    ones = np.ones(expected.shape)
    upstream = backend.to_device(ones)
    grads = roipool.multilevel_roi_align_backward(
        upstream, rois, [one.shape for one in maps], SCALES, 2, levels=own
    )
    oracle = reference.multilevel_roi_align_backward(
        ones, boxes, [one.shape for one in maps], SCALES, 2, levels=levels
    )
    for mine, other in zip(grads, oracle, strict=True):
        np.testing.assert_allclose(backend.to_host(mine), other, rtol=0, atol=1e-12)
    slopes = roipool.multilevel_roi_align_backward_rois(
        upstream, there, rois, SCALES, 2, levels=own
    )
    oracle_slopes = reference.multilevel_roi_align_backward_rois(
        ones, maps, boxes, SCALES, 2, levels=levels
    )
    np.testing.assert_allclose(backend.to_host(slopes), oracle_slopes, rtol=0, atol=1e-9)


def test_levels_by_size_are_the_default(backend: Backend) -> None:
    boxes = np.array([[0, 0, 0, 500, 500], [0, 0, 0, 200, 230], [1, 0, 0, 30, 30]], np.float32)
    maps = [
        backend.to_device(np.full((2, 1, 160 >> level, 160 >> level), level, np.float32))
        for level in range(4)
    ]
    rois = backend.to_device(boxes)
    pooled = roipool.multilevel_roi_align(maps, rois, 1, (1 / 4, 1 / 8, 1 / 16, 1 / 32), 2)
    assert backend.to_host(pooled).ravel().tolist() == [3, 1, 0]


def test_areas_not_logarithms_decide(backend: Backend) -> None:
    real = np.float32
    side = real(224)
    below = np.nextafter(side, real(0))
    rows = [[0, 0, side, side], [0, 0, below, below], [0, 0, 2 * side, 2 * side],
            [5, 5, 3, 3], [0, 0, np.nan, 9], [0, 0, np.inf, np.inf], [0, 0, 0, 0]]  # fmt: skip
    boxes = backend.to_device(np.array(rows, real))
    levels = roipool.assign_levels(boxes, 2, 5)
    assert levels.dtype == np.int64
    assert backend.to_host(levels).tolist() == [2, 1, 3, 0, 0, 3, 0]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_levels_of_any_numbers(backend: Backend, kind: Any) -> None:
    rng = np.random.default_rng(8)
    wide = rng.integers(0, 250, (700, 10)).astype(kind)
    own = roipool.assign_levels(backend.to_device(wide)[::2, ::2], 1, 9, 40, 4)
    expected = reference.assign_levels(wide[::2, ::2].astype(np.float64), 1, 9, 40, 4)
    assert len(set(expected.tolist())) > 3
    np.testing.assert_array_equal(backend.to_host(own), expected)
    none = roipool.assign_levels(backend.to_device(wide)[:0, :4], 1, 9)
    assert backend.to_host(none).shape == (0,)


@pytest.mark.parametrize("count", [1, 2])
def test_a_level_that_is_none_pools_nothing_on_a_gpu(gpu: Backend, count: int) -> None:
    maps = [gpu.to_device(np.ones((1, 1, 4, 4), np.float32))] * count
    rois = gpu.to_device(np.array([[0, 0, 0, 2, 2]] * 3, np.float32))
    levels = gpu.to_device(np.array([0, count, -1]))
    pooled = roipool.multilevel_roi_align(maps, rois, 1, (1,) * count, 1, levels=levels)
    assert gpu.to_host(pooled).ravel().tolist() == [1, 0, 0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_level_that_is_none_pools_nothing_on_a_host(count: int) -> None:
    # Public functions refuse it there; compiled programs of JAX cannot know it.
    maps = [np.ones((1, 1, 4, 4), np.float32)] * count
    boxes, images = np.array([[0, 0, 2, 2]] * 3, np.float32), np.zeros(3, np.int64)
    regions = Regions(boxes, images, np.array([0, count, -1]))
    pooling = Pooling(Definition("roi_align"), (1, 1), scales=(1.0,) * count)
    out = np.full((3, 1, 1, 1), np.nan, np.float32)
    _cpu.average(maps, regions, pooling, out)
    assert out.ravel().tolist() == [1, 0, 0]


def test_out_and_no_boxes(backend: Backend) -> None:
    maps = [backend.to_device(one) for one in pyramid(np.float32, "NCHW")]
    none = backend.to_device(np.zeros((0, 5), np.float32))
    assert roipool.multilevel_roi_align(maps, none, 2, SCALES).shape == (0, 5, 2, 2)
    upstream = backend.to_device(np.zeros((0, 5, 2, 2), np.float32))
    shapes = [one.shape for one in maps]
    for grad in roipool.multilevel_roi_align_backward(upstream, none, shapes, SCALES):
        assert not backend.to_host(grad).any()
    rois = backend.to_device(table().astype(np.float32))
    out = backend.to_device(np.empty((19, 5, 2, 2), np.float32))
    assert roipool.multilevel_roi_align(maps, rois, 2, SCALES, out=out) is out
    again = roipool.multilevel_roi_align(maps, rois, 2, SCALES)
    np.testing.assert_array_equal(backend.to_host(out), backend.to_host(again))


MAPS = [np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 2, 2), np.float32)]
BOX = [[0, 0, 0, 2, 2]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"features": MAPS[0]}, TypeError, "features must be a list or tuple, got ndarray"),
        ({"features": []}, ValueError, "features must hold one map at least"),
        ({"features": [MAPS[0], np.ones((1, 2, 2, 2), np.float32)]}, ValueError, "equal numbers"),
        ({"features": [MAPS[0], MAPS[1].astype(float)]}, TypeError, r"features\[1\] must have the"),
        ({"features": [MAPS[0], "x"]}, TypeError, r"features\[1\] must be a NumPy or CuPy array"),
        ({"spatial_scales": (1.0,)}, ValueError, "one number per map: got 1 for 2"),
        ({"spatial_scales": 1.0}, TypeError, "spatial_scales must be a list or tuple"),
        ({"spatial_scales": (1.0, np.inf)}, ValueError, r"spatial_scales\[1\] must be finite"),
        ({"spatial_scales": (0.0, 1.0)}, ValueError, r"spatial_scales\[0\] must be from 2\*\*-100"),
        ({"spatial_scales": (1e-300, 1e300)}, ValueError, "to 2.*100 without levels, got 1e-300"),
        ({"spatial_scales": (2.0**-100, 2.0**-101)}, ValueError, "reach level 100; .* 100 to 101"),
        ({"spatial_scales": (0.25, 0.0625)}, ValueError, "each half of the one before without lev"),
        ({"spatial_scales": (0.25, 0.5)}, ValueError, r"powers of two, .* got \(0.25, 0.5\)"),
        ({"spatial_scales": (0.3, 0.15)}, ValueError, "spatial_scales must be powers of two"),
        ({"spatial_scales": ((0.5, 0.25), 0.25)}, ValueError, "levels must be given where spatial"),
        ({"spatial_scales": (1.0, (0.5, 1, 2))}, ValueError, r"spatial_scales\[1\] must be one"),
        ({"levels": [2]}, ValueError, "levels must be from 0 to 1, the last map"),
        ({"levels": [0, 0]}, ValueError, r"levels must have shape \(1,\)"),
        ({"levels": [0.0]}, TypeError, "levels must hold integers"),
        ({"rois": [[1, 0, 0, 2, 2]]}, ValueError, "batch indices"),
    ],
)
def test_errors(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    usual = {"features": MAPS, "rois": BOX, "output_size": 1, "spatial_scales": (1.0, 0.5)}
    with pytest.raises(error, match=message):
        roipool.multilevel_roi_align(**usual | arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"min_level": 2.0}, TypeError, "min_level must be an int, got 2.0"),
        ({"max_level": 1}, ValueError, "max_level must be at least min_level, 2, got 1"),
        ({"max_level": 10**6}, ValueError, "max_level must be from -100 to 100, got 1000000"),
        (
            {"min_level": -(2**31)},
            ValueError,
            "min_level must be from -100 to 100, got -2",
        ),
        ({"canonical_size": 0}, ValueError, r"canonical_size must be from 2\*\*-100 to 2\*\*100"),
        ({"canonical_size": 1e200}, ValueError, r"canonical_size must be from .*, got 1e\+200"),
        ({"canonical_level": True}, TypeError, "canonical_level must be an int"),
        ({"canonical_level": 10**400}, ValueError, "canonical_level must be from -100 to 100"),
        ({"rois": [1, 2, 3, 4]}, ValueError, r"rois must have shape \(K, 5\) or \(K, 4\)"),
    ],
)
def test_errors_of_levels(arguments: dict[str, Any], error: type, message: str) -> None:
    usual = {"rois": BOX, "min_level": 2, "max_level": 5}
    with pytest.raises(error, match=message):
        roipool.assign_levels(**usual | arguments)
