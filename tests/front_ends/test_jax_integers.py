"""JAX arrays of integers: pooled to float32, without gradients by boxes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import CASES, SHAPE, SIZE, OperationCase
from _support.compare import assert_same_bits
from _support.pairwise import each

import roipool
from roipool._dtypes import FLOATS, INTEGERS
from roipool.jax import _transport

OF_INTEGERS = [case for case in CASES if case.op.dtypes != FLOATS]
every_integer_type = each(dtype=INTEGERS)


def integers_of(dtype: str, layout: str = "NCHW") -> np.ndarray:
    """Return maps of random integers."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    numbers = rng.integers(limits.min, limits.max, SHAPE, dtype, endpoint=True)
    return np.ascontiguousarray(np.moveaxis(numbers, 1, -1) if layout == "NHWC" else numbers)


@pytest.fixture(params=["handlers", "callbacks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose how programs call the kernels."""
    if request.param == "callbacks":
        monkeypatch.setattr(_transport, "why_no_handler", lambda: "a test")
    jax.clear_caches()
    return str(request.param)


@every_integer_type
@each(layout=("NCHW", "NHWC"))
@pytest.mark.parametrize("case", OF_INTEGERS, ids=str)
def test_integers_are_pooled_to_float32(
    way: str, case: OperationCase, dtype: str, layout: str
) -> None:
    maps = integers_of(dtype, layout)
    boxes, indices = case.boxes().astype(np.float32), case.indices()
    expected = case.pool(maps, boxes, indices, layout=layout)

    def pool(features: jax.Array) -> jax.Array:
        return case.pool(features, jnp.asarray(boxes), jnp.asarray(indices), layout=layout)

    features = jnp.asarray(maps)
    assert_same_bits(np.asarray(pool(features)), expected)
    assert_same_bits(np.asarray(jax.jit(pool)(features)), expected)
    batch = jnp.stack([features, features])
    of_floats = jax.vmap(pool)(batch.astype(np.float32))
    assert_same_bits(np.asarray(jax.vmap(pool)(batch)), np.asarray(of_floats))


@every_integer_type
@pytest.mark.parametrize("case", OF_INTEGERS, ids=str)
def test_integers_are_pooled_to_a_chosen_type(case: OperationCase, dtype: str) -> None:
    maps, boxes, indices = integers_of(dtype), case.boxes().astype(np.float32), case.indices()
    features, rest = jnp.asarray(maps), (jnp.asarray(boxes), jnp.asarray(indices))
    for name in ("float16", "bfloat16", "float32", dtype):
        expected = case.pool(maps, boxes, indices, dtype=name)
        found = case.pool(features, *rest, dtype=jnp.dtype(name))
        assert_same_bits(np.asarray(found), expected)
        compiled = jax.jit(lambda x, name=name: case.pool(x, *rest, dtype=name))
        assert_same_bits(np.asarray(compiled(features)), expected)
    with jax.enable_x64(False), pytest.raises(TypeError, match=r"dtype must not be float64 with"):
        case.pool(features, *rest, dtype="float64")
    with pytest.raises(TypeError, match=rf"dtype must be None or {dtype}, float16, .* got 'int32'"):
        case.pool(features, *rest, dtype="int32")
    with pytest.raises(TypeError, match=r"dtype must be None or float32 for float32 features"):
        case.pool(features.astype(jnp.float32), *rest, dtype=dtype)


@every_integer_type
@each(filling=["2.5", "3.5", "300", "-1.5", "nan", "inf", "-inf"])
def test_integers_are_rounded_as_those_of_numpy(dtype: str, filling: str) -> None:
    maps, boxes, images = np.zeros((1, 1, 4, 4), dtype), np.full((1, 4), 2.0), np.zeros(1, np.int32)
    options = {"extrapolation_value": float(filling), "dtype": dtype}
    found = roipool.crop_and_resize(*map(jnp.asarray, (maps, boxes, images)), 1, **options)
    assert_same_bits(np.asarray(found), roipool.crop_and_resize(maps, boxes, images, 1, **options))


@every_integer_type
@pytest.mark.parametrize("case", [case for case in OF_INTEGERS if case.moves], ids=str)
def test_integers_give_no_gradient_of_boxes(case: OperationCase, dtype: str) -> None:
    features, indices = jnp.asarray(integers_of(dtype)), jnp.asarray(case.indices())

    def total(boxes: jax.Array) -> jax.Array:
        return case.pool(features, boxes, indices).sum()

    with pytest.raises(TypeError, match=r"features must have dtype .*float64 for a gradient with"):
        jax.grad(total)(jnp.asarray(case.boxes(), jnp.float32))


@every_integer_type
@pytest.mark.parametrize("case", [case for case in CASES if case.op.dtypes == FLOATS], ids=str)
def test_other_operations_take_no_integers(case: OperationCase, dtype: str) -> None:
    features = jnp.asarray(np.repeat(integers_of(dtype), case.groups, axis=1))
    with pytest.raises(TypeError, match=rf"features must have dtype {', '.join(FLOATS)}, got"):
        case.pool(features, jnp.asarray(case.boxes(), jnp.float32), jnp.asarray(case.indices()))


@every_integer_type
def test_no_picture_and_no_boxes(dtype: str) -> None:
    none = roipool.roi_align(jnp.zeros((0, 3, 4, 4), dtype), jnp.zeros((0, 5)), SIZE)
    assert (none.shape, none.dtype) == ((0, 3, *SIZE), np.float32)
