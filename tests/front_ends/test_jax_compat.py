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

from roipool._gradients import gradient_names
from roipool.compat import caffe, torchvision
from roipool.systems import SYSTEMS


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
        program, parts = program_of(call, arrays)
        assert_same(jax.jit(program)(parts), expected)


Program = Callable[..., Any]


def program_of(call: RowCall, arrays: dict[str, Any]) -> tuple[Program, Any]:
    """Return a call as a function of all its arrays, and these."""
    leaves, form = jax.tree.flatten(arrays)
    places = [place for place, each in enumerate(leaves) if isinstance(each, jax.Array)]

    def program(parts: list[Any]) -> Any:
        own = dict(zip(places, parts, strict=True))
        whole = [own.get(place, each) for place, each in enumerate(leaves)]
        return results_of(call.function(**jax.tree.unflatten(form, whole)))

    return program, [leaves[place] for place in places]


@pytest.mark.parametrize("row", ROWS)
def test_vmap_is_a_loop(row: str) -> None:
    *_, call = calls_of(row, only_forward=True)
    arrays = converted(call.arguments, jax_array)
    program, parts = program_of(call, arrays)
    others = [each // 2 if jnp.issubdtype(each.dtype, jnp.integer) else -each for each in parts]
    others = [each if each.ndim == 4 else one for each, one in zip(others, parts, strict=True)]
    batch = [jnp.stack(both) for both in zip(parts, others, strict=True)]
    for number, one in enumerate((parts, others)):
        expected = [each if each is None else np.asarray(each) for each in program(one)]
        found = jax.vmap(program)(batch)
        assert_same([each if each is None else each[number] for each in found], expected)


def gradients_of(row: str) -> Iterator[tuple[RowCall, str, RowCall]]:
    """Yield the calls of forwards, an argument's name, and the call of the gradient by it."""
    forward = None
    for call in calls_of(row):
        if forward is None or call.case is not forward.case:
            forward = call
            continue
        names = gradient_names(inspect.unwrap(forward.function)) or {}
        # An exact gradient is asked for by the gradient's function alone.
        if not call.arguments.get("exact_gradient"):
            for name, gradient in names.items():
                if gradient == call.function.__name__ and is_float(forward.arguments[name]):
                    yield forward, name, call


def is_float(value: Any) -> bool:
    return all(getattr(one, "dtype", np.dtype(float)).kind in "fV" for one in results_of(value))


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


ROWS_OF_FUNCTIONS = [row for row in ROWS if len(SYSTEMS[row].forward.split(".")) == 3]


def gradients_by_name(call: RowCall) -> Any:
    """Return the gradient's name for each argument of a function that has one."""
    return gradient_names(inspect.unwrap(call.function)) or {}


def test_every_gradient_is_compared() -> None:
    """So a test proves each cell of the table in docs/systems/index.md."""
    compared = {(call.function, name) for row in FUNCTIONS for call, name, _ in gradients_of(row)}
    for row in ROWS_OF_FUNCTIONS:
        call = next(calls_of(row, only_forward=True))
        for name in gradients_by_name(call):
            assert (call.function, name) in compared, (row, name)


@pytest.mark.parametrize("row", ROWS_OF_FUNCTIONS)
def test_other_gradients_are_errors(row: str) -> None:
    call = next(calls_of(row, only_forward=True))
    arrays = converted(call.arguments, jax_array)
    for name in arrays.keys() - gradients_by_name(call).keys():
        if not isinstance(arrays[name], jax.Array) or not is_float(arrays[name]):
            continue

        def pooled(value: Any, name: str = name) -> Any:
            return results_of(call.function(**{**arrays, name: value}))[0].sum()

        with pytest.raises(TypeError, match=f"{name} must not be differentiated"):
            jax.grad(pooled)(arrays[name])


MAPS = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
ROIS = np.array([[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]], np.float32)


@pytest.mark.parametrize("compiled", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_gradients_that_there_are_not(compiled: Callable[[Program], Program]) -> None:
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
            arrays = converted(call.arguments, jax_array)
            known = converted(call.arguments, lambda array: np.asarray(jax_array(array)))
            expected = results_of(call.function(**known))
            program, parts = program_of(call, arrays)
            assert_same(program(parts), expected)
            assert_same(jax.jit(program)(parts), expected)
