"""Pyramids of JAX arrays: NumPy's results bit for bit by either transport, and levels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import maps
from _support.compare import assert_same_bits
from _support.jax_programs import request_of

import roipool
from roipool.jax import _transport

WAYS = [_transport.call_host]
if not _transport.why_no_handler():
    WAYS.append(_transport.call_handler)

SCALES = (0.5, 0.25, 0.125)
ROIS = jnp.asarray([[0, 1.3, 1, 20, 20], [1, 3, 4, 30.2, 31], [0, 2, 2, 6, 7.0]])


def pyramid(dtype: str = "float32") -> list[Any]:
    """Return maps of three levels."""
    return [jnp.asarray(maps((2, 3, side, side + 2)), dtype) for side in (16, 8, 4)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_both_ways_compute_the_bits_of_numpy(way: Any) -> None:
    """One map has no cells, one no boxes; a box without a map pools to 0 and has no gradient."""
    features = [*maps_of_numpy(), np.zeros((2, 3, 0, 5), np.float32), maps_of_numpy()[1]]
    scales = (*SCALES, 0.1, 0.1)
    boxes, indices = np.asarray(ROIS)[:, 1:], np.array([0, 1, 0])
    levels = np.array([0, 7, 1])
    at = (jnp.asarray(boxes), jnp.asarray(indices, jnp.int32), jnp.asarray(levels, jnp.int32))
    kept = [0, 2]
    plain = (boxes[kept], indices[kept], levels[kept])
    options: dict[str, Any] = {"batch_indices": plain[1], "levels": plain[2]}
    request = request_of(
        lambda maps: roipool.multilevel_roi_align(maps, plain[0], (2, 3), scales, 2, **options),
        [*map(jnp.asarray, features)],
    )
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


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32"])
def test_levels_of_any_integer_type(dtype: str) -> None:
    """Boxes with traced levels beyond the maps pool to nothing."""
    with jax.enable_x64(True):
        beyond = int(np.iinfo(dtype).max)
        levels = jnp.asarray([0, beyond, 2], dtype)
        features = pyramid()
        pool = jax.jit(lambda x: roipool.multilevel_roi_align(features, ROIS, 2, SCALES, levels=x))
        pooled = pool(levels)
        kept = levels.at[1].set(1)
        expected = pool(kept)
        assert not pooled[1].any()
        assert_same_bits(np.asarray(pooled[::2]), np.asarray(expected[::2]))


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray], ids=["NumPy", "JAX"])
def test_known_maps_beside_a_traced_gradient(of: Any) -> None:
    features, upstream = [of(each) for each in pyramid()], jnp.ones((3, 3, 2, 2))
    expected = roipool.multilevel_roi_align_backward_rois(upstream, features, ROIS, SCALES)
    program = jax.jit(
        lambda gradient: roipool.multilevel_roi_align_backward_rois(
            gradient, features, ROIS, SCALES
        )
    )
    assert_same_bits(np.asarray(program(upstream)), np.asarray(expected))
