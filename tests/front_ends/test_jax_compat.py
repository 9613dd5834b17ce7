"""The systems of `roipool.compat` on JAX arrays: the contract, and what only tracing shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.compare import assert_same_bits
from _support.rows import calls_of, converted, results_of
from front_ends.compat_contract import CompatContract

from roipool.compat import caffe, torchvision
from roipool.tools.random_calls.front_ends.jax import Differentiated, OnJax


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", False)  # they decide how a sum is rounded
    with jax.enable_x64(True):
        yield


def jax_array(array: Any) -> Any:
    native = array.astype(array.dtype.newbyteorder("="))
    return jnp.asarray(np.ascontiguousarray(native))


def assert_same(found: Any, expected: list[Any]) -> None:
    for array, one in zip(results_of(found), expected, strict=True):
        if one is None or array is None:
            assert one is array
            continue
        assert isinstance(array, jax.Array)
        if one.dtype.kind == "i":  # an argmax, or a number of cells
            array = array.astype(one.dtype)
        assert_same_bits(np.asarray(array), one)


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
    expected = [torchvision.roi_pool(MAPS, ROIS, 2)]
    for rois in (ROIS, ROIS.tolist()):
        assert_same(torchvision.roi_pool(jnp.asarray(MAPS), rois, 2), expected)
        program = jax.jit(lambda maps, rois=rois: torchvision.roi_pool(maps, rois, 2))
        assert_same(program(jnp.asarray(MAPS)), expected)


# Positions of samples come from the host, and degrees are computed in float64.
WITH_32_BITS = ["mxnet.ROIAlign", "mmcv.roi_align max", "mxnet.contrib_RROIAlign"]


@pytest.mark.parametrize("row", WITH_32_BITS)
def test_types_of_64_bits_may_be_off(row: str) -> None:
    with jax.enable_x64(False):
        for call in calls_of(row, dtype="float32", only_forward=True):
            known = converted(call.arguments, lambda array: np.asarray(jax_array(array)))
            expected = results_of(call.function(**known))
            leaves, form = jax.tree.flatten(converted(call.arguments, jax_array))
            places = [place for place, each in enumerate(leaves) if isinstance(each, jax.Array)]

            def program(parts: list[Any], call: Any = call, given: Any = (leaves, form)) -> Any:
                own = dict(zip(places, parts, strict=True))  # noqa: B023
                whole = [own.get(place, each) for place, each in enumerate(given[0])]
                return results_of(call.function(**jax.tree.unflatten(given[1], whole)))

            parts = [leaves[place] for place in places]
            assert_same(program(parts), expected)
            assert_same(jax.jit(program)(parts), expected)
