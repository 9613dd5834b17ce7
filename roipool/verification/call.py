"""Calls of public functions, with arguments by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool.systems import SYSTEMS, System

from .case import STORAGES, Array, Case, dtypes
from .pyramids import divided, joined

Results: TypeAlias = dict[str, Array]


class Call(NamedTuple):
    """One call of a function: its name below roipool, its arguments, and names for its results."""

    function: str
    arguments: dict[str, Any]
    returns: tuple[str, ...]


def run(
    case: Case,
    library: Any,
    operation: System | None = None,
    *,
    calls: list[Call] | None = None,
    **more: Any,
) -> Results:
    """Call an operation's functions.

    Parameters
    ----------
    case : Case
        What to call them with.
    library : module
        `roipool`, or something whose functions have the same arguments.
    operation : Operation, optional
        By default the case's.
    calls : list, optional
        Where to put the calls that are made.
    **more
        Arguments that come before the case's own: `argmax`, for example.

    Returns
    -------
    dict
        Arrays in NCHW and native byte order: "pooled", "gradient", and, where there are,
        "box_gradient" and the argmax or its positions.
    """
    operation = operation or SYSTEMS[case.operation]
    known = {**known_arguments(case), **operation.boxes(case), **operation.fixed, **case.options}
    if operation.pyramid:
        maps = divided(known["features"], case.layout)
        known["features"] = operation.pyramid(maps)
        known["input_shapes"] = operation.pyramid([one.shape for one in maps])
    if operation.argmax_is_of_batch and "argmax" in more:
        more["argmax"] = _in_batch(case, more["argmax"])
    results: Results = {}

    def call(function: str, returns: tuple[str, ...], out_shape: tuple[int, ...]) -> None:
        if not function or more.get(function, True) is None:
            return
        arguments = _arguments_of(library, function, known | more, operation.names)
        if "out" in arguments:
            arguments["out"] = _result_array(case, out_shape)
        if calls is not None:
            calls.append(Call(function, arguments, returns))
        found = function_of(library, function)(**arguments)
        found = found if isinstance(found, tuple) else (joined(found, case.layout),)
        if arguments.get("out") is not None and found[0] is not arguments["out"]:
            raise AssertionError(f"{function} does not return its out")
        # Somebody else's function may return the pooled values only, or more.
        known.update(zip(returns[1:], found[1:], strict=False))
        results.update(zip(returns, found, strict=False))

    pooled_shape = in_layout_shape(case.grad.shape, case.layout)
    call(operation.forward, operation.returns, pooled_shape)
    call(operation.backward, ("gradient",), known["input_shape"])
    call(operation.box_gradient, ("box_gradient",), ())
    if operation.argmax_is_of_batch and "argmax" in results:
        results["argmax"] = _in_each_map(case, results["argmax"])
    return {
        name: to_nchw(array.astype(array.dtype.newbyteorder("="), copy=False), case.layout)
        for name, array in results.items()
    }


def known_arguments(case: Case) -> dict[str, Any]:
    """Return the arguments that every operation may have, apart from boxes and options."""
    store, dtype = STORAGES[case.storage].store, dtypes()[case.dtype]
    rows, columns = case.size
    return {
        "features": store(in_layout(case.maps.astype(dtype), case.layout)),
        "grad_output": store(in_layout(case.grad.astype(dtype), case.layout)),
        "input_shape": in_layout_shape(case.maps.shape, case.layout),
        "output_size": (rows, columns),
        "crop_size": (rows, columns),
        **dict.fromkeys(("pooled_h", "output_height", "crop_height"), rows),
        **dict.fromkeys(("pooled_w", "output_width", "crop_width"), columns),
        "layout": case.layout,
        "out": None,
    }


def _in_batch(case: Case, argmax: Array) -> Array:
    """Return an argmax, counted in each map, as one that counts through all of them."""
    cells, channels = math.prod(case.maps.shape[2:]), case.maps.shape[1]
    first = case.images[:, None] * channels + np.arange(channels)
    return np.where(argmax < 0, -1, argmax + first[:, :, None, None] * cells)


def _in_each_map(case: Case, argmax: Array) -> Array:
    return np.where(argmax < 0, -1, argmax % max(1, math.prod(case.maps.shape[2:])))


def function_of(library: Any, name: str) -> Any:
    """Return a function by its name; a method takes the arguments of its class, too."""
    *path, last = name.split(".")
    for part in path:
        library = getattr(library, part)
    is_class = inspect.isclass(library)
    return _method(library, last) if is_class else getattr(library, last)


@cache
def _method(kind: type, name: str) -> Any:
    """Return a function that makes an object and calls a method of it."""
    made = inspect.signature(kind).parameters
    _, *taken = inspect.signature(getattr(kind, name)).parameters.values()  # without self

    def call(**arguments: Any) -> Any:
        own = {one: value for one, value in arguments.items() if one in made}
        rest = {one: value for one, value in arguments.items() if one not in made}
        return getattr(kind(**own), name)(**rest)

    by_name = [one.replace(kind=one.KEYWORD_ONLY) for one in (*made.values(), *taken)]
    call.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return call


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _arguments_of(
    library: Any, function: str, known: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return those arguments that the function has."""
    parameters = _parameters(inspect.unwrap(function_of(library, function)))
    wanted = ((own, names.get(own, own)) for own in parameters)
    return {own: known[name] for own, name in wanted if name in known}


def _result_array(case: Case, shape: tuple[int, ...]) -> Array | None:
    """Return what is passed as `out`, full of something."""
    if case.out == "new":
        return None
    return STORAGES[case.out].store(np.full(shape, np.nan, dtypes()[case.dtype]))


def in_layout(array: Array, layout: str) -> Array:
    """Return an NCHW array in `layout`, contiguous."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1) if layout == "NHWC" else array)


def in_layout_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return an NCHW shape in `layout`."""
    return (shape[0], *shape[2:], shape[1]) if layout == "NHWC" else tuple(shape)


def to_nchw(array: Array, layout: str) -> Array:
    """Return an array of `layout` as NCHW; gradients of boxes have no layout."""
    return np.moveaxis(array, -1, 1) if layout == "NHWC" and array.ndim == 4 else array
