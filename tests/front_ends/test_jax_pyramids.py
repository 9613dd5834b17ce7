"""Several maps in one call of JAX arrays: NumPy's numbers by either transport, levels, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import PYRAMID_CASES, PyramidCase, maps, to_layout
from _support.compare import assert_same_bits
from _support.pairwise import each

import roipool
from roipool._requests import RequestsOf
from roipool.jax import _transport

WAYS = [_transport.call_host]
if not _transport.why_no_handler():
    WAYS.append(_transport.call_handler)

FIXED = PYRAMID_CASES[0]
SCALES = (0.5, 0.25, 0.125)
ROIS = jnp.asarray([[0, 1.3, 1, 20, 20], [1, 3, 4, 30.2, 31], [0, 2, 2, 6, 7.0]])
GROWN = ROIS * jnp.asarray([1, 12, 12, 12, 12])


def pyramid(dtype: str = "float32") -> list[Any]:
    """Return maps of three levels."""
    return [jnp.asarray(maps((2, 3, side, side + 2)), dtype) for side in (16, 8, 4)]


@pytest.mark.parametrize("case", PYRAMID_CASES, ids=str)
@each(
    dtype_and_layout=[
        ("float16", "NCHW"),
        ("bfloat16", "NHWC"),
        ("float32", "NCHW"),
        ("float64", "NHWC"),
    ]
)
def test_values_and_gradients_are_those_of_numpy(
    case: PyramidCase, dtype_and_layout: tuple[str, str]
) -> None:
    dtype, layout = dtype_and_layout
    with jax.enable_x64(dtype == "float64"):
        features = to_layout(jnp.asarray(maps(), dtype), layout)
        boxes, indices = jnp.asarray(case.boxes(), jnp.float32), jnp.asarray(case.indices())
        at = np.asarray(boxes), np.asarray(indices)
        expected = case.pool(np.asarray(features), *at, layout=layout)
        upstream = jnp.asarray(maps(expected.shape, seed=1), dtype)
        plain = np.asarray(upstream)

        @jax.jit
        def both(features: Any, boxes: Any) -> Any:
            pool = lambda *given: case.pool(*given, indices, layout=layout)  # noqa: E731
            pooled, pullback = jax.vjp(pool, features, boxes)
            return pooled, *pullback(upstream)

        pooled, gradient, slopes = both(features, boxes)
        assert_same_bits(np.asarray(pooled), expected)
        by_boxes = case.box_gradient(plain, np.asarray(features), *at, layout=layout)
        assert_same_bits(np.asarray(slopes), by_boxes.astype(np.float32))
        got = case.box_gradient(upstream, features, boxes, indices, layout=layout)
        assert_same_bits(np.asarray(got), by_boxes)
        by_maps = case.gradient(plain, None, *at, features.shape, layout=layout)
        fine, coarse = (jnp.asarray(each) for each in by_maps)
        half = (slice(None, None, 2),) * 2
        where = (slice(None), *half) if layout == "NHWC" else (slice(None), slice(None), *half)
        assert_same_bits(np.asarray(gradient), np.asarray(fine.at[where].add(2 * coarse)))
        got = case.gradient(upstream, None, boxes, indices, features.shape, layout=layout)
        for mine, other in zip(got, by_maps, strict=True):
            assert_same_bits(np.asarray(mine), other)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_both_ways_compute_the_bits_of_numpy(way: Any) -> None:
    """One map has no cells, one no boxes, and one box no map: it pools 0 and gets no gradient."""
    features = [*maps_of_numpy(), np.zeros((2, 3, 0, 5), np.float32), maps_of_numpy()[1]]
    scales = (*SCALES, 0.1, 0.1)
    boxes, indices = np.asarray(ROIS)[:, 1:], np.array([0, 1, 0])
    levels = np.array([0, 7, 1])
    given = {"spatial_scales": scales, "sampling_ratio": 2, "aligned": True, "layout": "NCHW"}
    request = RequestsOf(FIXED.op).request(given, features[0].shape, (2, 3))
    at = (jnp.asarray(boxes), jnp.asarray(indices, jnp.int32), jnp.asarray(levels, jnp.int32))
    kept = [0, 2]
    plain = (boxes[kept], indices[kept], levels[kept])
    options: dict[str, Any] = {"batch_indices": plain[1], "levels": plain[2]}
    pooled = np.zeros((3, 3, 2, 3), np.float32)
    pooled[kept] = roipool.multilevel_roi_align(features, plain[0], (2, 3), scales, 2, **options)
    upstream = np.ones_like(pooled)
    shapes = [each.shape for each in features]
    gradients = roipool.multilevel_roi_align_backward(
        upstream[kept], plain[0], shapes, scales, 2, **options
    )
    slopes = np.zeros((3, 4), np.float32)
    slopes[kept] = roipool.multilevel_roi_align_backward_rois(
        upstream[kept], features, plain[0], scales, 2, **options
    )

    def check(kernel: str, expected: list[Any], *operands: Any) -> None:
        results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in expected]
        program = jax.jit(lambda *args: way(kernel, args, results, request))
        got = program(*map(jnp.asarray, operands), *at)
        for mine, other in zip(got, expected, strict=True):
            assert_same_bits(np.asarray(mine), other)

    check("average", [pooled], *features)
    check("average_backward", gradients, upstream)
    check("box_gradient", [slopes], upstream, *features)


def maps_of_numpy() -> list[Any]:
    return [np.asarray(each) for each in pyramid()]


def test_nothing_to_pool() -> None:
    for rois, features in ((ROIS[:0], pyramid()), (ROIS, [one[:, :0] for one in pyramid()])):
        pool = jax.jit(lambda x, r: roipool.multilevel_roi_align(x, r, 2, SCALES))
        assert pool(features, rois).shape == (len(rois), features[0].shape[1], 2, 2)
        gradient = jax.grad(lambda x, r: pool(x, r).sum())(features, rois)  # noqa: B023
        assert [one.shape for one in gradient] == [one.shape for one in features]
        assert not any(one.any() for one in gradient)


# ---- Levels


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_levels_are_those_of_numpy(dtype: str) -> None:
    """By areas in float64, also without JAX's own, compiled or not."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == "float64"):
        table = rng.uniform(-50, 600, (200, 5)).astype(dtype)
        table[:3, 3] = np.nan, np.inf, 0
        side = np.nextafter(np.float32(224), np.float32(0))
        table[3:5, 1:] = [0, 0, side, side], [0, 0, 224, 224]
        expected = roipool.assign_levels(table, 2, 5)
        assert expected[3] < expected[4]
        rois = jnp.asarray(table)
        for given in (rois, rois[:, 1:]):
            assert roipool.assign_levels(given, 2, 5).tolist() == expected.tolist()
            compiled = jax.jit(lambda r: roipool.assign_levels(r, 2, 5))
            assert compiled(given).tolist() == expected.tolist()


def test_levels_by_size_are_the_default() -> None:
    levels = roipool.assign_levels(GROWN, 1, 3)
    assert len(set(levels.tolist())) > 1
    got = roipool.multilevel_roi_align(pyramid(), GROWN, 2, SCALES)
    expected = roipool.multilevel_roi_align(pyramid(), GROWN, 2, SCALES, levels=levels)
    assert_same_bits(np.asarray(got), np.asarray(expected))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32"])
def test_levels_of_any_integer_type(dtype: str) -> None:
    """Traced ones beyond the maps pool nothing, however large they are."""
    with jax.enable_x64(True):
        beyond = int(np.iinfo(dtype).max)
        levels = jnp.asarray([0, beyond, 2], dtype)
        pool = jax.jit(lambda x: roipool.multilevel_roi_align(MAPS, ROIS, 2, SCALES, levels=x))
        pooled = pool(levels)
        kept = levels.at[1].set(1)
        expected = pool(kept)
        assert not pooled[1].any()
        assert_same_bits(np.asarray(pooled[::2]), np.asarray(expected[::2]))


# ---- Errors

MAPS = pyramid()
TWO = MAPS[:2]
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "one map": ({"features": MAPS[0]}, TypeError, "features must be a list or tuple"),
    "no array": ({"features": [*TWO, 1.0]}, TypeError, r"features\[2\] must be a JAX array"),
    "two types": (
        {"features": [*TWO, MAPS[2].astype(jnp.float16)]}, TypeError,
        r"features\[2\] must have the dtype of features\[0\]",
    ),
    "channels": ({"features": [*TWO, MAPS[2][:, :1]]}, ValueError, "equal numbers of"),
    "scales": ({"spatial_scales": (1.0,)}, ValueError, "spatial_scales must hold one number"),
    "a scale": ({"spatial_scales": 1.0}, TypeError, "spatial_scales must be a list or tuple"),
    "a scale of 0": ({"spatial_scales": (0.0, 1.0, 2.0)}, ValueError, "to 2.*100 without levels"),
    "float levels": ({"levels": jnp.zeros(3)}, TypeError, "levels must hold integers"),
    "few levels": ({"levels": jnp.array([0])}, ValueError, r"levels must have shape \(3,\)"),
    "a level of none": ({"levels": [0, 1, 3]}, ValueError, "levels must be from 0 to 2"),
    "out": ({"out": np.zeros(3)}, TypeError, "out must be None"),
    "bins": ({"output_size": 0}, ValueError, "output_size must be from 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    wrong, kind, message = WRONG[name]
    usual = {"features": MAPS, "rois": ROIS, "output_size": 2, "spatial_scales": SCALES}
    call: Callable[[], Any] = lambda: roipool.multilevel_roi_align(**usual | wrong)  # noqa: E731
    values_matter = name == "a level of none"
    for function in (call,) if values_matter else (call, jax.jit(call)):
        with pytest.raises(kind, match=f"^multilevel_roi_align: .*{message}"):
            function()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ROIS[:, :3], 2, 5), ValueError, "rois must have shape"),
        ((ROIS > 0, 2, 5), TypeError, "rois must hold real numbers"),
        ((ROIS, 5, 2), ValueError, "max_level must be at least"),
        ((ROIS, 2, 10**6), ValueError, "max_level must be from -100 to 100, got 1000000"),
        ((ROIS, 2, 5, 1e300), ValueError, "canonical_size must be from"),
    ],
)
def test_errors_of_levels(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^assign_levels: {message}"):
        roipool.assign_levels(*arguments)
    with pytest.raises(TypeError, match=r"^assign_levels: min_level must be an int"):
        jax.jit(lambda level: roipool.assign_levels(ROIS, level, 5))(2)
