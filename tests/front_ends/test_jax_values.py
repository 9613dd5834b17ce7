"""JAX arrays give the numbers of NumPy arrays, bit for bit, compiled or not, in every form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import CASES, SIZE, Case, maps, to_layout
from _support.compare import assert_close, assert_same_bits
from _support.pairwise import each

from roipool import reference

every_case = pytest.mark.parametrize("case", CASES, ids=str)
moving = pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
every_layout = each(layout=["NCHW", "NHWC"])


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        jax.config.update("jax_disable_most_optimizations", True)
        yield


def arrays(case: Case, dtype: str) -> tuple[Any, Any, Any]:
    boxes = case.boxes().astype(np.float64 if dtype == "float64" else np.float32)
    return jnp.asarray(maps(), dtype), jnp.asarray(boxes), jnp.asarray(case.indices())


@every_case
@each(
    dtype_and_layout=[
        ("float16", "NCHW"),
        ("bfloat16", "NHWC"),
        ("float32", "NHWC"),
        ("float64", "NCHW"),
    ]
)
def test_values_and_gradients_are_those_of_numpy(
    case: Case, dtype_and_layout: tuple[str, str]
) -> None:
    dtype, layout = dtype_and_layout
    features, boxes, indices = arrays(case, dtype)
    features = to_layout(features, layout)
    at = (np.asarray(boxes), np.asarray(indices))
    expected = case.pool(np.asarray(features), *at, layout=layout)
    upstream = jnp.asarray(maps(expected.shape, seed=1), dtype)

    @jax.jit
    def both(features: Any, boxes: Any, indices: Any, upstream: Any) -> Any:
        moving = [boxes] if case.moves else []

        def function(features: Any, *corners: Any) -> Any:
            return case.pool(features, *(corners or [boxes]), indices, layout=layout)

        pooled, pullback = jax.vjp(function, features, *moving)
        return pooled, *pullback(upstream)

    pooled, gradient, *slopes = both(features, boxes, indices, upstream)
    assert isinstance(pooled, jax.Array)
    assert_same_bits(np.asarray(pooled), expected)
    argmax = None
    if case.variant.has_argmax:
        argmax = case.pool(np.asarray(features), *at, layout=layout, return_argmax=True)[1]
    plain = np.asarray(upstream)
    expected = case.gradient(plain, argmax, *at, features.shape, layout=layout)
    assert_same_bits(np.asarray(gradient), expected)
    if case.moves:
        expected = case.box_gradient(plain, np.asarray(features), *at, layout=layout)
        assert_same_bits(np.asarray(slopes[0]), expected)


@every_case
@every_layout
def test_public_gradients(case: Case, layout: str) -> None:
    features, boxes, indices = arrays(case, "float32")
    features = to_layout(features, layout)
    pooled = case.pool(features, boxes, indices, layout=layout)
    argmax = None
    if case.variant.has_argmax:
        pooled, argmax = case.pool(features, boxes, indices, layout=layout, return_argmax=True)
        expected = case.pool(
            *map(np.asarray, (features, boxes, indices)), layout=layout, return_argmax=True
        )
        assert_same_bits(np.asarray(argmax), expected[1])
    plain: Any = [np.asarray(each) for each in (pooled, boxes, indices)]
    numbers = None if argmax is None else np.asarray(argmax)
    expected = case.gradient(plain[0], numbers, *plain[1:], features.shape, layout=layout)
    got = case.gradient(pooled, argmax, boxes, indices, features.shape, layout=layout)
    assert_same_bits(np.asarray(got), expected)
    if case.moves:
        expected = case.box_gradient(plain[0], np.asarray(features), *plain[1:], layout=layout)
        got = case.box_gradient(pooled, features, boxes, indices, layout=layout)
        assert_same_bits(np.asarray(got), expected)


@every_case
def test_values_are_those_of_the_oracle(case: Case) -> None:
    features, boxes, indices = arrays(case, "float64")
    oracle = getattr(reference, case.op.forward)
    arguments = {
        case.op.boxes: np.asarray(boxes), case.op.indices: np.asarray(indices), case.op.size: SIZE,
    }  # fmt: skip
    expected = oracle(np.asarray(features), **arguments, **case.options())
    terms = np.full_like(expected, np.abs(features).max())
    assert_close(np.asarray(case.pool(features, boxes, indices)), expected, terms, ulps=40)


@pytest.mark.parametrize("case", [case for case in CASES if case.op.boxes == "rois"], ids=str)
def test_boxes_in_three_forms(case: Case) -> None:
    features, boxes, indices = arrays(case, "float64")
    order = jnp.argsort(indices, stable=True)
    boxes, indices = boxes[order], indices[order]
    expected = case.pool(features, boxes, indices)
    table = jnp.concatenate([indices[:, None].astype(boxes.dtype), boxes], 1)
    per_image = [boxes[indices == image] for image in range(len(features))]
    forms: list[Any] = [table, np.asarray(table), np.asarray(table).tolist(), per_image]
    for form in [*forms, tuple(per_image)]:
        assert_same_bits(np.asarray(case.pool(features, form, None)), np.asarray(expected))
    compiled = jax.jit(lambda maps, parts: case.pool(maps, parts, None))(features, per_image)
    assert_same_bits(np.asarray(compiled), np.asarray(expected))


@moving
def test_gradients_of_boxes_in_three_forms(case: Case) -> None:
    features, boxes, indices = arrays(case, "float64")
    order = jnp.argsort(indices, stable=True)
    boxes, indices = boxes[order], indices[order]

    def loss(rois: Any, numbers: Any) -> Any:
        return (case.pool(features, rois, numbers) ** 2).sum()

    expected = jax.grad(loss)(boxes, indices)
    assert jnp.abs(expected).max() > 0
    if case.op.boxes == "boxes":
        return
    table = jnp.concatenate([indices[:, None].astype(boxes.dtype), boxes], 1)
    got = jax.grad(loss)(table, None)
    assert not got[:, 0].any()
    assert_same_bits(np.asarray(got[:, 1:]), np.asarray(expected))
    per_image = [boxes[indices == image] for image in range(len(features))]
    got = jax.grad(loss)(per_image, None)
    assert_same_bits(np.concatenate(got), np.asarray(expected))


@every_case
def test_nothing_to_pool(case: Case) -> None:
    features = jnp.asarray(maps())
    empty = (jnp.zeros((0, case.op.columns)), jnp.zeros(0, jnp.int32))
    for function in (case.pool, jax.jit(case.pool)):
        assert function(features, *empty).shape == (0, 3, *SIZE)
    gradient = jax.grad(lambda x: case.pool(x, *empty).sum())(features)
    assert not gradient.any()
    none = jnp.zeros((2, 0, 8, 9))
    at = (jnp.asarray(case.boxes()), jnp.asarray(case.indices()))
    assert case.pool(none, *at).shape == (5, 0, *SIZE)
    assert jax.grad(lambda x: case.pool(x, *at).sum())(none).shape == none.shape
    filling = 1.5 if case.op.filling else 0
    for shape in ((0, 3, 8, 9), (2, 3, 0, 9), (2, 3, 8, 0)):
        pooled = jax.jit(case.pool)(jnp.zeros(shape), *at)
        assert pooled.shape == (5, 3, *SIZE)
        assert (pooled == filling).all(), shape


@pytest.mark.parametrize("case", [CASES[3], CASES[-1]], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "float64"])
def test_boxes_and_indices_of_other_types(case: Case, dtype: str) -> None:
    """They are converted as NumPy's are."""
    features = jnp.asarray(maps(), "float32")
    boxes = jnp.asarray(case.boxes()).astype(dtype)
    indices = jnp.asarray(case.indices()).astype(dtype)
    expected = case.pool(*map(np.asarray, (features, boxes, indices)))
    got = jax.jit(case.pool)(features, boxes, indices)
    assert_same_bits(np.asarray(got), expected)
