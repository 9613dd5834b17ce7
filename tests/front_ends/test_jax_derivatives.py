"""Derivatives within JAX's checkpoints, loops and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import ALL_CASES, SMALL, OperationCase, maps
from front_ends.contract.derivatives import TYPICAL

import roipool

# Rules do not depend on how many samples a bin has, and every jit costs a compilation.
CASES = [case for case in ALL_CASES if not case.adaptive]

every_case = pytest.mark.parametrize("case", CASES, ids=str)
typical = pytest.mark.parametrize("case", TYPICAL, ids=str)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        jax.config.update("jax_disable_most_optimizations", True)
        yield


def of_features(case: OperationCase) -> Callable[..., Any]:
    boxes, indices = jnp.asarray(case.boxes(3)), jnp.asarray(case.indices(3))
    return jax.jit(lambda features: case.pool(features, boxes, indices))


def small_maps() -> Any:
    return jnp.asarray(maps(SMALL))


def loss_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (function(*args) ** 2).sum()


@every_case
def test_checkpoint(case: OperationCase) -> None:
    loss, features = loss_of(of_features(case)), small_maps()
    expected = jax.grad(loss)(features)
    np.testing.assert_array_equal(jax.grad(jax.checkpoint(loss))(features), expected)
    assert expected.any()


@typical
def test_scan(case: OperationCase) -> None:
    """A compiled loop, and its gradient."""
    function, features = of_features(case), small_maps()

    def loss(first: Any) -> Any:
        def step(total: Any, factor: Any) -> Any:
            return total + (function(first * factor) ** 2).sum(), None

        return jax.lax.scan(step, 0.0, jnp.array([1.0, 2.0]))[0]

    expected = jax.grad(lambda x: (function(x) ** 2).sum() + (function(2 * x) ** 2).sum())
    np.testing.assert_allclose(jax.grad(loss)(features), expected(features), rtol=1e-12)


@pytest.mark.parametrize("extrapolation_value", [0.0, 0.5])
def test_the_value_outside_the_map_has_no_tangent(extrapolation_value: float) -> None:
    """A tangent is the crop of a tangent that is 0 outside: the derivative of a linear function."""
    boxes, images = jnp.array([[-0.5, -0.5, 1.5, 1.5], [2.0, 2, 3, 3]]), jnp.array([0, 0])
    image, change = small_maps()[:1], jnp.ones_like(small_maps()[:1])

    def crop(x: Any) -> Any:
        return roipool.crop_and_resize(x, boxes, images, 3, extrapolation_value=extrapolation_value)

    _, tangent = jax.jvp(crop, (image,), (change,))
    expected = np.zeros((2, image.shape[1], 3, 3))
    expected[0, :, 1, 1] = 1.0
    np.testing.assert_array_equal(tangent, expected)


@pytest.mark.parametrize("image", [-1, 1, 7])
def test_a_box_of_no_image_has_no_derivatives(image: int) -> None:
    """A program does not know its values; their argmax may be of another call."""
    boxes, argmax = jnp.array([[0.0, 0, 3, 3]] * 2), jnp.full((2, 1, 1, 1), 3, jnp.int32)

    @jax.jit
    def derivatives(grad: Any, images: Any) -> Any:
        def backward(grad: Any) -> Any:
            shape = (1, 1, 4, 4)
            return roipool.roi_pool_backward(grad, argmax, boxes, shape, batch_indices=images)

        found, transposed = jax.vjp(backward, grad)
        return found, transposed(jnp.full(found.shape, 5.0))[0]

    first, second = derivatives(jnp.ones((2, 1, 1, 1)), jnp.array([0, image]))
    assert first.ravel().tolist() == [0, 0, 0, 1, *[0] * 12]
    assert second.ravel().tolist() == [5, 0]
