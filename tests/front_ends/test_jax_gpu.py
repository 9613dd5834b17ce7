"""JAX's programs on a real GPU; `test_jax_cuda.py` shows more with a stand-in for the driver.

Without a device these tests fail.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import maps
from _support.jax_programs import check_operation
from _support.kernel_calls import FULL, KERNELS

import roipool
import roipool.jax

pytestmark = pytest.mark.gpu

MAPS = maps((2, 8, 20, 22)).astype(np.float32)
ROIS = np.array([[0, 1, 2, 13, 15], [1, 4, 5, 19, 9], [0, -3, 2, 5, 30]], np.float32)


@pytest.fixture(autouse=True)
def on_gpu() -> Iterator[None]:
    """Compute on the first GPU, and fail where a program computes on the host."""
    with jax.default_device(jax.devices("cuda")[0]), warnings.catch_warnings():
        warnings.filterwarnings("error", "roipool:", RuntimeWarning)
        yield


def test_programs_launch_kernels() -> None:
    assert roipool.jax.transport("cuda") == "handlers of XLA"


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel(name: str) -> None:
    check_operation(name, FULL)


def test_a_loop_that_may_become_a_graph() -> None:
    """Each turn pools what the last one's gradient gave."""

    def pool(given: Any) -> Any:
        return roipool.roi_align(given, jnp.asarray(ROIS), 3, 1.0)

    def turn(_: int, given: jax.Array) -> jax.Array:
        return jax.grad(lambda each: (pool(each) ** 2).sum())(given)

    found = jax.jit(lambda given: jax.lax.fori_loop(0, 8, turn, given))(MAPS)
    expected = MAPS
    for _ in range(8):
        pooled = roipool.roi_align(expected, ROIS, 3, 1.0)
        expected = roipool.roi_align_backward(2 * pooled, ROIS, MAPS.shape, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
