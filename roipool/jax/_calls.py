"""Calls of public functions on JAX arrays.

Arrays whose values are known become NumPy's, which are checked and computed exactly as in any call.
What is traced, for a derivative, a batch or a compiler, goes through ``roipool.jax._library``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from roipool import _arguments as check
from roipool._arrays import LIBRARY_OF, NUMPY, parts_of
from roipool._dlpack import is_exchangeable
from roipool._errors import with_name
from roipool._gradients import (
    PublishedCall,
    features_of,
    gradient_names,
    published_of,
    signature_of,
)
from roipool.jax import _library
from roipool.jax._rounding import evaluate

Array = Any
Function = Callable[..., Any]


def call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function; errors begin with its name."""
    try:
        return _called(function, dict(signature_of(function).bind(*args, **kwargs).arguments))
    except (TypeError, ValueError) as error:
        raise with_name(error, function.__name__) from None


def _called(function: Function, given: dict[str, Any]) -> Any:
    if given.get("out") is not None:
        raise TypeError("out must be None for JAX arrays, which do not change")
    _check_dtype(given.get("dtype"))
    place = _place_of_results(given)
    arguments, arrays = _taken(given, _is_array)
    values = [_known_values(each) for each in arrays]
    if all(each is not None for each in values):
        like = arrays[0] if place is None else place
        return _like(like, _computed(function, _put(arguments, values)))
    own, name = _with_allowed_derivatives(function, given), function.__name__
    published = published_of(function)
    if published is not None and not (call := published.of((), own)).is_derivative:
        return call.asked(_with_published_gradient(call, name))
    arguments, arrays = _taken(own, _is_array)
    return _traced(name, lambda *arrays: _computed(function, _put(arguments, arrays)), arrays)


def _check_dtype(dtype: Any) -> None:
    """Check that JAX has the dtype that pooled values are to have."""
    try:
        is_double = dtype is not None and np.dtype(dtype) == check.FLOAT64
    except TypeError:  # the function says so
        return
    if is_double and jax.dtypes.canonicalize_dtype(check.FLOAT64) != check.FLOAT64:
        raise TypeError(
            "dtype must not be float64 with JAX's 32-bit types; "
            'jax.config.update("jax_enable_x64", True) has it'
        )


def _place_of_results(given: Mapping[str, Any]) -> Array | None:
    """Return the first array that must stay on its device, if there is one.

    Raises
    ------
    TypeError
        If an argument, or an item beside JAX arrays in a list, is neither JAX's nor NumPy's.
    ValueError
        If arrays that must stay on their devices are on several.
    """
    first: tuple[str, Array] | None = None
    for argument, value in given.items():
        parts = parts_of(value)
        takes_numbers = not (isinstance(value, (list, tuple)) and any(map(_is_array, parts)))
        for number, part in enumerate(parts):
            name = argument if parts is not value else f"{argument}[{number}]"
            if not _is_array(part):
                _refuse_other(name, part, takes_numbers=takes_numbers)
            elif _is_fixed(part):
                first = first or (name, part)
                (own,), (expected,) = part.devices(), first[1].devices()
                if own != expected:
                    raise ValueError(
                        f"{name} must be on the device of {first[0]}, {expected}, got {own}"
                    )
    return None if first is None else first[1]


def _is_fixed(array: Array) -> bool:
    """Return whether an array's values are on one device, where they must stay."""
    return not isinstance(array, jax.core.Tracer) and array.committed and len(array.devices()) == 1


def _refuse_other(name: str, value: Any, *, takes_numbers: bool) -> None:
    kind = type(value)
    library = LIBRARY_OF[kind]
    if library is None:
        is_other = is_exchangeable(kind) or not (takes_numbers or isinstance(value, (list, tuple)))
    else:
        is_other = library is not NUMPY
    if is_other:
        raise TypeError(
            f"{name} must be a {_library.array}, as other arguments are; got "
            f"{kind.__module__}.{kind.__name__}"
        )


def _with_allowed_derivatives(function: Function, given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments through which only those derivatives flow that the function has.

    Features and boxes of ``roipool`` that have no gradient are constant. A function of ``compat``
    refuses to be differentiated by them. Known values become NumPy's, so that they are checked.
    """
    maps = ("features", features_of(function))
    own = {
        name: value if name in maps else _mapped(value, _if_known) for name, value in given.items()
    }
    if function.__module__.startswith("roipool.ops."):
        fixed = _constant_arguments(function)
        return {
            name: _mapped(value, _constant) if name in fixed else value
            for name, value in own.items()
        }
    names = gradient_names(function)
    if names is None:
        return own
    return {
        name: value if name in names else _mapped(value, _refusing(function.__name__, name))
        for name, value in own.items()
    }


@functools.cache
def _constant_arguments(function: Function) -> frozenset[str]:
    """Return the arguments of an operation, or of a gradient of it, that have no gradient."""
    module, name = vars(sys.modules[function.__module__]), function.__name__
    forward = inspect.unwrap(module[name.partition("_backward")[0]])
    names = gradient_names(forward)
    if names is None:  # operations that it calls know
        return frozenset()
    return frozenset(signature_of(forward).parameters) - frozenset(names)


def _constant(value: Any) -> Any:
    return jax.lax.stop_gradient(value) if _is_differentiable(value) else value


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
    return _library.checked_values(array) if is_real else None


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


def _traced(name: str, function: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    """Return what a public function computes of arrays whose values are not known.

    It computes in the types that NumPy's functions have, whatever JAX's settings.
    """
    form: list[Any] = []

    def compute(*arrays: Array) -> list[Array]:
        kinds = (jax.Array, np.ndarray)
        own, found = _taken(function(*arrays), lambda each: isinstance(each, kinds))
        form.append(own)
        return found

    token = _library.OPERATION.set(name)
    try:
        with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
            program = jax.make_jaxpr(compute)(*arrays)
            results = evaluate(program.jaxpr, program.consts, arrays)
    finally:
        _library.OPERATION.reset(token)
    return _put(form[-1], [_canonical(jnp.asarray(each)) for each in results])


def _canonical(array: Array) -> Array:
    """Return an array in the dtype that JAX's setting for 64 bits leaves it."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return array if dtype == array.dtype else array.astype(dtype)


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


def _with_published_gradient(call: PublishedCall, name: str) -> Any:
    """Return all results of a function whose gradients are functions of their own."""
    given = call.arrays
    places = [place for place, each in enumerate(given) if _is_array(each)]

    def whole(parts: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """Return as many values as the call has arrays: parts at the places of JAX's."""
        own = dict(zip(places, parts, strict=True))
        return [own.get(place, each) for place, each in enumerate(others)]

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def compute(*parts: Array) -> Any:
        return _traced(name, lambda *parts: call.results(whole(parts, given)), parts)

    def forward(*parts: Any) -> Any:
        values = [each.value for each in parts]
        results = _traced(name, lambda *parts: call.results(whole(parts, given)), values)
        more = results[1:] if isinstance(results, tuple) else ()
        return results, (values, more, _Needed(each.perturbed for each in parts))

    def backward(saved: Any, cotangents: Any) -> Any:
        values, more, needed = saved
        flags = whole(needed, [False for _ in given])
        gradient = cotangents[0] if isinstance(cotangents, tuple) else cotangents

        def gradients(gradient: Array, *arrays: Array) -> Any:
            parts, results = arrays[: len(values)], arrays[len(values) :]
            return call.gradients(gradient, whole(parts, given), results, flags)

        found = _traced(name, gradients, (gradient, *values, *more))
        return tuple(
            None if found[place] is None else found[place].astype(value.dtype)
            for place, value in zip(places, values, strict=True)
        )

    compute.defvjp(forward, backward, symbolic_zeros=True)
    return compute(*(given[place] for place in places))
