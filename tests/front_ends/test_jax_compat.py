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


def gradients_of(row: str) -> Iterator[tuple[RowCall, str, RowCall]]:
    """Yield the calls of forwards, an argument's name, and the call of the gradient by it."""
    forward = None
    for call in calls_of(row):
        if forward is None or call.case is not forward.case:
            forward = call
            continue
        names = gradient_names(inspect.unwrap(forward.function)) or {}
        for name, gradient in names.items():
            if gradient == call.function.__name__:
                yield forward, name, call


def pulled_back(call: RowCall, name: str, gradient: Any, *, by_compiler: bool) -> list[Any]:
    """Return the gradient by an argument, of each of its arrays."""
    arrays = converted(call.arguments, jax_array)

    def pooled(value: Any) -> Any:
        results = call.function(**{**arrays, name: value})
        return results[0] if isinstance(results, tuple) else results

    def both(value: Any, gradient: Any) -> Any:
        return jax.vjp(pooled, value)[1](gradient)[0]

    found = (jax.jit(both) if by_compiler else both)(arrays[name], gradient)
    return results_of(found)


FUNCTIONS = [row for row in ROWS if any(True for _ in gradients_of(row))]


@pytest.mark.parametrize("row", FUNCTIONS)
def test_gradients_are_the_published(row: str) -> None:
    for call, name, gradient in gradients_of(row):
        upstream = jax_array(gradient.arguments[gradient.maps])
        expected = [one.astype(one.dtype.newbyteorder("=")) for one in gradient.expected()]
        for by_compiler in (False, True):
            found = pulled_back(call, name, upstream, by_compiler=by_compiler)
            found = [np.asarray(one) for one in found]
            if len(found) > len(expected):  # boxes of several images
                found = [np.concatenate(found)]
            for one, own in zip(found, expected, strict=True):
                if one.ndim == 2 and one.shape[1] == own.shape[1] + 1:  # a batch index before a box
                    assert not one[:, 0].any()
                    one = one[:, 1:]
                assert_same_bits(one.astype(own.dtype), own)
