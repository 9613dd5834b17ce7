"""JAX arrays in every function of ``roipool.compat``, with the results of NumPy's calls.

Derivatives are the published gradients, bit for bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.compare import assert_same_bits
from _support.rows import ROWS, RowCall, calls_of, converted, results_of

from roipool._gradients import features_of, gradient_names
from roipool.compat import caffe, mxnet, tensorflow, torchvision


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


@pytest.mark.parametrize("row", ROWS)
def test_every_row(row: str) -> None:
    """Known values are checked and computed as NumPy's; traced ones give the same bits."""
    for call in calls_of(row):
        expected = call.expected()
        assert_same(call.with_arrays(jax_array), expected)
        arrays = converted(call.arguments, jax_array)
        for names in ([call.maps], [name for name in arrays if name != call.maps]):
            assert_same(traced(call, arrays, names), expected)


def traced(call: RowCall, arrays: dict[str, Any], names: list[str]) -> Any:
    """Return the results of a compiled program of some arguments."""
    leaves, form = jax.tree.flatten({name: arrays[name] for name in names})
    places = [place for place, each in enumerate(leaves) if isinstance(each, jax.Array)]

    @jax.jit
    def program(parts: list[Any]) -> Any:
        own = dict(zip(places, parts, strict=True))
        whole = [own.get(place, each) for place, each in enumerate(leaves)]
        return call.function(**{**arrays, **jax.tree.unflatten(form, whole)})

    return program([leaves[place] for place in places])
