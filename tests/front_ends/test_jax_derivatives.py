"""Derivatives of every order and mode, batches, and what is refused rather than zero."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import CASES as SINGLE_CASES
from _support.cases import PYRAMID_CASES, SMALL, Case, maps, to_layout
from jax.test_util import check_grads

CROP = "crop_and_resize, bilinear"
# Rules do not depend on how many samples a bin has, and every jit costs a compilation.
CASES = [case for case in [*SINGLE_CASES, *PYRAMID_CASES] if not case.adaptive]
LINEAR = [case for case in CASES if case.is_linear]
# The first is of a maximum, the second moves with its boxes, the third has them in another order.
PYRAMID = "multilevel_roi_align, avg"
TYPICAL = [CASES[0], *[case for case in CASES if case.name in ("roi_align, avg", CROP, PYRAMID)]]

every_case = pytest.mark.parametrize("case", CASES, ids=str)
linear = pytest.mark.parametrize("case", LINEAR, ids=str)
moving = pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
typical = pytest.mark.parametrize("case", TYPICAL, ids=str)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        jax.config.update("jax_disable_most_optimizations", True)
        yield


def boxes_of(case: Case, count: int = 3, seed: int = 0) -> tuple[Any, Any]:
    return jnp.asarray(case.boxes(count, seed)), jnp.asarray(case.indices(count))


def of_features(case: Case, layout: str = "NCHW") -> Callable[..., Any]:
    boxes, indices = boxes_of(case)
    return jax.jit(lambda features: case.pool(features, boxes, indices, layout=layout))


def small_maps(seed: int = 0) -> Any:
    return jnp.asarray(maps(SMALL, seed))


def loss_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (function(*args) ** 2).sum()


# ---- Derivatives by features


@pytest.mark.parametrize(
    ("case", "layout"),
    [*((case, "NCHW") for case in LINEAR), *((case, "NHWC") for case in TYPICAL)],
    ids=str,
)
def test_derivatives_by_features(case: Case, layout: str) -> None:
    """Finite differences: both modes, to the second order."""
    check_grads(of_features(case, layout), (to_layout(small_maps(), layout),), order=2)


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_linear], ids=str)
def test_gradient_of_a_maximum_of_samples(case: Case) -> None:
    check_grads(of_features(case), (small_maps(),), order=1, modes=["rev"])


@typical
def test_hessian_vector_products(case: Case) -> None:
    """Forward over reverse, reverse over reverse and reverse over forward agree."""
    loss, features, other = loss_of(of_features(case)), small_maps(), small_maps(1)
    forward = jax.jit(lambda x, v: jax.jvp(jax.grad(loss), (x,), (v,))[1])(features, other)
    reverse = jax.grad(lambda x: (jax.grad(loss)(x) * other).sum())(features)
    mixed = jax.grad(lambda x: jax.jvp(loss, (x,), (other,))[1])(features)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(forward, mixed, rtol=1e-12, atol=1e-12)


@typical
def test_both_jacobians(case: Case) -> None:
    function, features = of_features(case), small_maps()
    forward, reverse = jax.jacfwd(function)(features), jax.jacrev(function)(features)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-12)
    assert forward.any()


@every_case
def test_backward_is_the_adjoint(case: Case) -> None:
    """<pool(x), g> = <x, backward(g)>, where pooling is linear, or linear once chosen."""
    features = small_maps()
    pooled, pullback = jax.vjp(of_features(case), features)
    upstream = jnp.asarray(maps(pooled.shape, seed=2))
    (gradient,) = pullback(upstream)
    constant = of_features(case)(jnp.zeros_like(features)) if case.op.filling else 0.0
    left, right = ((pooled - constant) * upstream).sum(), (features * gradient).sum()
    np.testing.assert_allclose(left, right, rtol=1e-12)


@every_case
def test_checkpoint(case: Case) -> None:
    loss, features = loss_of(of_features(case)), small_maps()
    expected = jax.grad(loss)(features)
    np.testing.assert_array_equal(jax.grad(jax.checkpoint(loss))(features), expected)
    assert expected.any()


@typical
def test_checkpoint_with_other_transformations(case: Case) -> None:
    loss, features = loss_of(of_features(case)), small_maps()
    expected = jax.grad(loss)(features)
    compiled = jax.grad(jax.jit(jax.checkpoint(loss)))(features)
    np.testing.assert_array_equal(compiled, expected)
    again = jax.vmap(jax.grad(jax.checkpoint(loss)))(features[None])
    np.testing.assert_allclose(again[0], expected, rtol=1e-12, atol=1e-12)


@typical
def test_scan(case: Case) -> None:
    """A loop that is compiled once, and its gradient."""
    function, features = of_features(case), small_maps()

    def loss(first: Any) -> Any:
        def step(total: Any, factor: Any) -> Any:
            return total + (function(first * factor) ** 2).sum(), None

        return jax.lax.scan(step, 0.0, jnp.array([1.0, 2.0]))[0]

    expected = jax.grad(lambda x: (function(x) ** 2).sum() + (function(2 * x) ** 2).sum())
    np.testing.assert_allclose(jax.grad(loss)(features), expected(features), rtol=1e-12)


# ---- Derivatives by boxes


@moving
def test_gradient_by_boxes(case: Case) -> None:
    boxes, indices = boxes_of(case)
    function = jax.jit(lambda features, corners: case.pool(features, corners, indices))
    check_grads(function, (small_maps(), boxes), order=1, modes=["rev"])


@moving
def test_mixed_second_derivative(case: Case) -> None:
    """The gradient by features, by boxes again: no more than the first kernels."""
    boxes, indices = boxes_of(case)
    features = small_maps()
    upstream = jnp.asarray(maps(of_features(case)(features).shape, seed=2))

    def gradient(corners: Any) -> Any:
        pooled = lambda maps: (case.pool(maps, corners, indices) * upstream).sum()  # noqa: E731
        return jax.grad(pooled)(features)

    check_grads(gradient, (boxes,), order=1, modes=["rev"])


@moving
def test_forward_mode_of_the_gradient_by_boxes(case: Case) -> None:
    """It is linear in features and in the gradient of the pooled values."""
    boxes, indices = boxes_of(case)
    features, other = small_maps(), small_maps(1)
    upstream = jnp.asarray(maps(of_features(case)(features).shape, seed=2))

    def slopes(maps: Any, grad: Any) -> Any:
        return case.box_gradient(grad, maps, boxes, indices)

    value, change = jax.jvp(slopes, (features, upstream), (other, upstream))
    np.testing.assert_allclose(change, slopes(other, upstream) + value, rtol=1e-12)


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.moves and case.op.forward != "roi_align"], ids=str
)
def test_whole_cells_do_not_move_with_boxes(case: Case) -> None:
    """Their derivative is 0 almost everywhere, as other libraries have it."""
    boxes, indices = boxes_of(case)
    function = lambda corners: case.pool(small_maps(), corners, indices)  # noqa: E731
    assert not jax.grad(loss_of(function))(boxes).any()
    assert not jax.jvp(function, (boxes,), (boxes,))[1].any()


# ---- Batches


IN_AXES = [(0, None, None), (None, 0, None), (0, 0, None), (0, 0, 0), (2, 1, None), (None, None, 0)]


@pytest.mark.parametrize(
    ("case", "in_axes", "layout"),
    [
        *((case, in_axes, "NCHW") for case in TYPICAL for in_axes in IN_AXES),
        *((case, in_axes, "NHWC") for case in TYPICAL for in_axes in IN_AXES[2:4]),
        *((case, IN_AXES[0], "NHWC") for case in CASES),
        *((case, IN_AXES[4], "NCHW") for case in CASES if case not in TYPICAL),
    ],
    ids=str,
)
def test_vmap_is_a_loop(case: Case, in_axes: tuple[int | None, ...], layout: str) -> None:
    """Forward and gradients of a batch are those of its calls, whatever has the batch."""
    calls = 3

    def batch(make: Callable[[int], Any], axis: int | None) -> Any:
        return make(0) if axis is None else np.stack([make(n) for n in range(calls)], axis)

    arguments = (
        batch(lambda n: to_layout(small_maps(n), layout), in_axes[0]),
        batch(lambda n: boxes_of(case, seed=n)[0], in_axes[1]),
        batch(lambda n: (boxes_of(case)[1] + n) % 2, in_axes[2]),
    )
    pool = functools.partial(case.pool, layout=layout)
    gradient = jax.grad(loss_of(pool), argnums=(0, 1) if case.moves else 0)
    both = jax.jit(lambda *args: (pool(*args), gradient(*args)))
    got = jax.tree.leaves(jax.jit(jax.vmap(both, in_axes))(*arguments))
    for number in range(calls):
        each = [
            value if axis is None else np.take(value, number, axis)
            for value, axis in zip(arguments, in_axes, strict=True)
        ]
        for batched, alone in zip(got, jax.tree.leaves(both(*each)), strict=True):
            np.testing.assert_allclose(batched[number], alone, rtol=1e-12, atol=1e-12)


@typical
@pytest.mark.parametrize("sizes", [(0, 2, 8, 5), (3, 2, 8, 0), (3, 2, 0, 5)], ids=str)
@pytest.mark.parametrize("in_axes", IN_AXES, ids=str)
def test_vmap_of_nothing(
    case: Case, in_axes: tuple[int | None, ...], sizes: tuple[int, ...]
) -> None:
    """Without calls, boxes or cells shapes are those that others have."""
    calls, images, height, boxes = sizes
    alone = (
        jnp.zeros((images, 3, height, 9)),
        jnp.asarray(case.boxes(boxes)),
        jnp.asarray(case.indices(boxes)),
    )
    arguments = [
        value if axis is None else jnp.stack([value] * 3, axis)
        for value, axis in zip(alone, in_axes, strict=True)
    ]
    some = [
        value if axis is None else jax.lax.slice_in_dim(value, 0, calls, axis=axis)
        for value, axis in zip(arguments, in_axes, strict=True)
    ]
    gradient = jax.grad(loss_of(case.pool), argnums=(0, 1) if case.moves else 0)
    for function in (case.pool, gradient):
        expected = jax.tree.leaves(function(*alone))
        for got, one in zip(
            jax.tree.leaves(jax.vmap(function, in_axes)(*some)), expected, strict=True
        ):
            assert got.shape == (calls, *one.shape)
            assert (got == one).all()


@typical
def test_batches_of_batches_and_of_tangents(case: Case) -> None:
    function = of_features(case)
    features = jnp.stack([jnp.stack([small_maps(3 * n + m) for m in range(2)]) for n in range(3)])
    got = jax.vmap(jax.vmap(function))(features)
    np.testing.assert_allclose(got[2, 1], function(features[2, 1]), rtol=1e-12, atol=1e-12)

    def change(x: Any, v: Any) -> Any:
        return jax.jvp(jax.grad(loss_of(function)), (x,), (v,))[1]

    got = jax.vmap(change)(features[:, 0], features[:, 1])
    alone = change(features[1, 0], features[1, 1])
    np.testing.assert_allclose(got[1], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrong", [2.0, -1.0, 0.5, float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("shared", [False, True])
def test_a_wrong_index_is_no_image_of_another_call(wrong: float, shared: bool) -> None:
    case = next(case for case in CASES if case.op.forward == "roi_align")
    features = maps() if shared else np.stack([maps(), maps(seed=1)])
    table = np.array([[[wrong, 1.0, 1.0, 4.0, 4.0]], [[0, 1.0, 1.0, 4.0, 4.0]]])
    function = jax.vmap(lambda x, rois: case.pool(x, rois, None), (None if shared else 0, 0))
    got = function(jnp.asarray(features), jnp.asarray(table))
    assert not got[0].any()
    assert got[1].any()


# ---- What no kernel computes is an error, never zero


@moving
def test_derivatives_through_boxes_that_are_refused(case: Case) -> None:
    boxes, indices = boxes_of(case)
    features = small_maps()

    def pool(corners: Any) -> Any:
        return case.pool(features, corners, indices)

    def slopes(maps: Any) -> Any:
        return jax.grad(lambda r: (case.pool(maps, r, indices) ** 2).sum())(boxes).sum()

    def change(corners: Any) -> Any:
        return jax.jvp(loss_of(pool), (corners,), (boxes,))[1]

    refused = [
        lambda: jax.jvp(pool, (boxes,), (boxes,)),
        lambda: jax.jacfwd(pool)(boxes),
        lambda: jax.hessian(loss_of(pool))(boxes),
        lambda: jax.grad(lambda r: jax.grad(loss_of(pool))(r).sum())(boxes),
        lambda: jax.grad(slopes)(features),
        lambda: jax.grad(change)(boxes),
    ]
    for function in refused:
        with pytest.raises(NotImplementedError, match=f"{case.op.forward}.*boxes"):
            jax.jit(function)()
    with pytest.raises(NotImplementedError, match=f"{case.op.forward}.*boxes"):
        refused[0]()


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_linear], ids=str)
def test_derivatives_of_a_maximum_of_samples_that_are_refused(case: Case) -> None:
    function, features = of_features(case), small_maps()
    boxes, indices = boxes_of(case)
    refused = [
        lambda: jax.jvp(function, (features,), (features,)),
        lambda: jax.grad(lambda x: jax.grad(loss_of(function))(x).sum())(features),
        lambda: jax.grad(lambda r: case.pool(features, r, indices).sum())(boxes),
        lambda: jax.jvp(lambda r: case.pool(features, r, indices), (boxes,), (boxes,)),
    ]
    for compute in refused:
        with pytest.raises(NotImplementedError, match=r"roi_align.*maximum of samples"):
            compute()
