"""The systems of `roipool.compat` on JAX arrays: the contract, and what only tracing shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.compare import assert_same_bits
from front_ends.compat_contract import CompatContract
from front_ends.contract.calls import calls_of_every_form, check_bits

from roipool.compat import caffe, torchvision
from roipool.tools.random_calls.front_ends.adapters import (
    ARRAYS,
    each_of,
    given_boxes,
    with_boxes,
)
from roipool.tools.random_calls.front_ends.jax import Differentiated, Jitted, OnJax, to_jax


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", False)  # they decide how a sum is rounded
    with jax.enable_x64(True):
        yield


class TestContract(CompatContract):
    library = "jax"
    usual = ("plain",)
    adapter, differentiated = OnJax, Differentiated
    refused = "must not be differentiated"

    def gradient(self, pool: Callable[[Any], Any], array: Any) -> Any:
        return jax.grad(lambda value: pool(value).sum())(array)


MAPS = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
ROIS = np.array([[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]], np.float32)


@pytest.mark.parametrize("compiled", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_gradients_that_there_are_not(compiled: Callable[..., Any]) -> None:
    def pooled(rois: Any) -> Any:
        return caffe.roi_pooling(jnp.asarray(MAPS), rois, 2, 2, 1.0)[0].sum()

    with pytest.raises(TypeError, match=r"^roi_pooling: rois must not be differentiated"):
        jax.grad(compiled(pooled))(jnp.asarray(ROIS))
    with pytest.raises(TypeError, match=r"^roi_pooling: rois must not be differentiated"):
        compiled(jax.grad(pooled))(jnp.asarray(ROIS))


def test_known_values_are_checked() -> None:
    """Those beside traced maps, too."""
    rois = jnp.asarray([[7.0, 0, 0, 1, 1]])
    with pytest.raises(ValueError, match=r"^roi_pool: boxes\[0, 0\] is 7.0, but the batch holds 2"):
        torchvision.roi_pool(jnp.asarray(MAPS), rois, 2)
    with pytest.raises(ValueError, match=r"^roi_pool: boxes\[0, 0\] is 7.0, but the batch holds 2"):
        jax.grad(lambda maps: torchvision.roi_pool(maps, rois, 2).sum())(jnp.asarray(MAPS))


def test_arguments_that_are_refused() -> None:
    maps, rois = jnp.asarray(MAPS), jnp.asarray(ROIS)
    with pytest.raises(TypeError, match=r"input must be a JAX array, as other arguments are"):
        torchvision.roi_pool(MAPS, rois, 2)
    with pytest.raises(TypeError, match=r"^roi_pool: spatial_scale must be a real number"):
        jax.jit(torchvision.roi_pool, static_argnums=2)(maps, rois, 2, 0.5)
    with pytest.raises(TypeError, match=r"^roi_pool: input must have dtype float16"):
        torchvision.roi_pool(jax.random.key(0), rois, 2)


def test_arrays_and_lists_of_numbers_stand_beside_maps() -> None:
    expected = torchvision.roi_pool(MAPS, ROIS, 2)
    for rois in (ROIS, ROIS.tolist()):
        pool = lambda maps, rois=rois: torchvision.roi_pool(maps, rois, 2)  # noqa: E731
        for function in (pool, jax.jit(pool)):
            assert_same_bits(np.asarray(function(jnp.asarray(MAPS))), expected)


# Positions of samples come from the host, and degrees are computed in float64.
WITH_32_BITS = ["mxnet.ROIAlign", "mmcv.roi_align max", "mxnet.contrib_RROIAlign"]


@pytest.mark.parametrize("row", WITH_32_BITS)
def test_types_of_64_bits_may_be_off(row: str) -> None:
    with jax.enable_x64(False):
        for case in calls_of_every_form(row, "float32"):
            case = replace(case, out="new", storage="plain")
            given = {
                name: each_of(value, lambda array: np.asarray(to_jax(array)))
                if name in ARRAYS
                else value
                for name, value in given_boxes(case).items()
            }
            forward = with_boxes(case, given).only_forward
            for adapter in (OnJax, Jitted):
                check_bits(case, forward, adapter(case))
