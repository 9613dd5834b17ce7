"""Calls of public functions on JAX arrays.

Arrays whose values are known become NumPy's, which are checked and computed exactly as in any call.
What is traced, for a derivative, a batch or a compiler, goes through ``roipool.jax._library``.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from roipool._errors import with_name
from roipool._gradients import (
    PublishedCall,
    features_of,
    gradient_names,
    published_of,
    signature_of,
)
from roipool.jax._operations import FUNCTIONS, host_values
from roipool.jax._rounding import evaluate

Array = Any
Function = Callable[..., Any]


def call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function; errors begin with its name."""
    if function.__name__ in FUNCTIONS and function.__module__.startswith("roipool.ops."):
        return FUNCTIONS[function.__name__](*args, **kwargs)
    try:
        return _called(function, dict(signature_of(function).bind(*args, **kwargs).arguments))
    except (TypeError, ValueError) as error:
        raise with_name(error, function.__name__) from None


def _called(function: Function, given: dict[str, Any]) -> Any:
    if given.get("out") is not None:
        raise TypeError("out must be None for JAX arrays, which do not change")
    arguments, arrays = _taken(given, _is_array)
    values = [_known_values(each) for each in arrays]
    if all(each is not None for each in values):
        return _like(arrays[0], _computed(function, _put(arguments, values)))
    features, names = features_of(function), gradient_names(function)
    own = {
        name: value if name == features else _mapped(value, _if_known)
        for name, value in given.items()
    }
    if names is not None:
        own = {
            name: value if name in names else _mapped(value, _refusing(function.__name__, name))
            for name, value in own.items()
        }
    published = published_of(function)
    if published is not None and not (call := published.of((), own)).is_derivative:
        return call.asked(_with_published_gradient(call))
    arguments, arrays = _taken(own, _is_array)
    return _traced(lambda *arrays: _computed(function, _put(arguments, arrays)), arrays)


def _computed(function: Function, given: dict[str, Any]) -> Any:
    """Return a function's results, for arguments by name: some may be positional only."""
    bound = inspect.BoundArguments(signature_of(function), OrderedDict(given))
    return function(*bound.args, **bound.kwargs)


# ---- Arguments and results: arrays, and sequences and mappings of them


class _Place(NamedTuple):
    """The place of an array that was taken out."""

    number: int


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a value with a function of each of its parts in the place of these."""
    if isinstance(value, dict):
        return type(value)((name, _mapped(each, function)) for name, each in value.items())
    if isinstance(value, (list, tuple)) and not isinstance(value, _Place):
        parts = [_mapped(each, function) for each in value]
        return parts if isinstance(value, list) else tuple(parts)
    return function(value)


def _taken(value: Any, is_taken: Callable[[Any], bool]) -> tuple[Any, list[Any]]:
    """Return a value with places instead of some of its parts, and these."""
    found: list[Any] = []

    def place(part: Any) -> Any:
        if not is_taken(part):
            return part
        found.append(part)
        return _Place(len(found) - 1)

    return _mapped(value, place), found


def _put(value: Any, parts: Sequence[Any]) -> Any:
    """Return a value with parts at their places."""
    return _mapped(value, lambda each: parts[each.number] if isinstance(each, _Place) else each)


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array)


def _known_values(array: Array) -> Any:
    """Return an array's values where they are known, on one device of the host, else None."""
    if isinstance(array, jax.core.Tracer) or len(array.devices()) > 1:
        return None
    is_real = not jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended)
    return host_values(array) if is_real else None


def _if_known(value: Any) -> Any:
    """Return an array of JAX's whose values are known as NumPy's, anything else as it is."""
    if not isinstance(value, jax.Array):
        return value
    values = _known_values(value)
    return value if values is None else values


def _like(array: Array, results: Any) -> Any:
    """Return NumPy's results as JAX arrays, on the device of an argument."""
    (device,) = array.devices()

    def own(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        if dtype.kind in "iu" and value.size and value.max() > np.iinfo(dtype).max:
            raise ValueError(
                "results hold numbers beyond 32 bits, which JAX has with "
                'jax.config.update("jax_enable_x64", True)'
            )
        return jax.device_put(value, device) if array.committed else jnp.asarray(value)

    with jax.default_device(device):
        return _mapped(results, own)


# ---- Traced calls


def _traced(function: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    """Return a function of arrays whose values are not known.

    It computes with the types of 64 bits that its system has, whatever JAX's setting.
    """
    form: list[Any] = []

    def compute(*arrays: Array) -> list[Array]:
        kinds = (jax.Array, np.ndarray)
        own, found = _taken(function(*arrays), lambda each: isinstance(each, kinds))
        form.append(own)
        return found

    with jax.enable_x64(True):
        program = jax.make_jaxpr(compute)(*arrays)
        results = evaluate(program.jaxpr, program.consts, arrays)
    return _put(form[-1], [_canonical(each) for each in results])


def _canonical(array: Array) -> Array:
    array = jnp.asarray(array)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


@functools.cache
def _refusing(function: str, name: str) -> Callable[[Any], Any]:
    """Return an identity that raises an error where it is differentiated."""

    @jax.custom_jvp  # type: ignore[untyped-decorator]  # no types where no JAX is
    def same(array: Array) -> Array:
        return array

    def rule(primals: Any, tangents: Any) -> Any:
        (change,) = tangents
        if not isinstance(change, SymbolicZero):
            error = TypeError(
                f"{name} must not be differentiated: the function has no gradient with respect "
                f"to it; use jax.lax.stop_gradient"
            )
            raise with_name(error, function)
        return primals[0], change

    same.defjvp(rule, symbolic_zeros=True)
    return lambda value: same(value) if _is_differentiable(value) else value


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer) and jnp.issubdtype(value.dtype, jnp.floating)


# ---- Published gradients


@jax.tree_util.register_static
class _Needed(tuple[bool, ...]):
    """Which arrays of a call need gradients."""


def _with_published_gradient(call: PublishedCall) -> Any:
    """Return all results of a function whose gradients are functions of their own."""
    given = call.arrays
    places = [place for place, each in enumerate(given) if _is_array(each)]

    def whole(parts: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """Return as many values as the call has arrays: parts at the places of JAX's."""
        own = dict(zip(places, parts, strict=True))
        return [own.get(place, each) for place, each in enumerate(others)]

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def compute(*parts: Array) -> Any:
        return _traced(lambda *parts: call.results(whole(parts, given)), parts)

    def forward(*parts: Any) -> Any:
        values = [each.value for each in parts]
        results = _traced(lambda *parts: call.results(whole(parts, given)), values)
        more = results[1:] if isinstance(results, tuple) else ()
        return results, (values, more, _Needed(each.perturbed for each in parts))

    def backward(saved: Any, cotangents: Any) -> Any:
        values, more, needed = saved
        flags = whole(needed, [False for _ in given])
        gradient = cotangents[0] if isinstance(cotangents, tuple) else cotangents

        def gradients(gradient: Array, *arrays: Array) -> Any:
            parts, results = arrays[: len(values)], arrays[len(values) :]
            return call.gradients(gradient, whole(parts, given), results, flags)

        found = _traced(gradients, (gradient, *values, *more))
        return tuple(
            None if found[place] is None else found[place].astype(value.dtype)
            for place, value in zip(places, values, strict=True)
        )

    compute.defvjp(forward, backward, symbolic_zeros=True)
    return compute(*(given[place] for place in places))
