"""Calls of public functions on JAX arrays.

Arrays whose values are known become NumPy's, which are checked and computed exactly as in any call.
What is traced, for a derivative, a batch or a compiler, goes through ``roipool.jax._library``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roipool._errors import with_name
from roipool._gradients import features_of, gradient_names, signature_of
from roipool.jax._operations import FUNCTIONS, host_values
from roipool.jax._rounding import evaluate

Array = Any
Function = Callable[..., Any]


def call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function; errors begin with its name."""
    if function.__module__.startswith("roipool.ops."):
        return FUNCTIONS[function.__name__](*args, **kwargs)
    try:
        return _called(function, dict(signature_of(function).bind(*args, **kwargs).arguments))
    except (TypeError, ValueError) as error:
        raise with_name(error, function.__name__) from None


def _called(function: Function, given: dict[str, Any]) -> Any:
    if given.get("out") is not None:
        raise TypeError("out must be None for JAX arrays, which do not change")
    arrays, known = _taken(given, _is_array)[1], {}
    values = [_known_values(each) for each in arrays]
    if all(each is not None for each in values):
        known = _put(_taken(given, _is_array)[0], values)
        return _like(arrays[0], function(**known))
    known = {
        name: value if name == features_of(function) else _mapped(value, _if_known)
        for name, value in given.items()
    }
    return _traced(function, _without_refused(function, known))


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


def _traced(function: Function, given: dict[str, Any]) -> Any:
    """Return a function's results, where values are not known.

    It computes with the types of 64 bits that its system has, whatever JAX's setting.
    """
    arguments, arrays = _taken(given, _is_array)
    form: list[Any] = []

    def compute(*arrays: Array) -> list[Array]:
        results = function(**_put(arguments, arrays))
        own, found = _taken(results, lambda each: isinstance(each, (jax.Array, np.ndarray)))
        form.append(own)
        return found

    with jax.enable_x64(True):
        program = jax.make_jaxpr(compute)(*arrays)
        results = evaluate(program.jaxpr, program.consts, arrays)
    return _put(form[-1], [_canonical(each) for each in results])


def _canonical(array: Array) -> Array:
    array = jnp.asarray(array)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return array if array.dtype == dtype else array.astype(dtype)


def _without_refused(function: Function, given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of which those without a gradient refuse to be differentiated."""
    names = gradient_names(function) or {}

    def refusing(name: str) -> Callable[[Any], Any]:
        guard = _refusing(function.__name__, name)
        return lambda value: guard(value) if _is_differentiable(value) else value

    return {
        name: value if name in names else _mapped(value, refusing(name))
        for name, value in given.items()
    }


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer) and jnp.issubdtype(value.dtype, jnp.floating)


@functools.cache
def _refusing(function: str, name: str) -> Callable[[Array], Array]:
    """Return an identity that raises an error if it is differentiated."""

    @jax.custom_jvp
    def same(array: Array) -> Array:
        return array

    def rule(primals: Any, tangents: Any) -> Any:
        (change,) = tangents
        if not isinstance(change, jax.custom_derivatives.SymbolicZero):
            raise TypeError(
                f"{function}: {name} must not be differentiated: the function has no gradient "
                f"with respect to it; use jax.lax.stop_gradient({name})"
            )
        return primals[0], change

    same.defjvp(rule, symbolic_zeros=True)
    return same
