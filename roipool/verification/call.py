"""Calls the functions of a system with the arguments that a case describes."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool._dtypes import INTEGERS
from roipool.systems import SYSTEMS, System, masks, volumes
from roipool.systems.case import STORAGES, Array, Case, dtypes, in_layout
from roipool.systems.pyramids import divided, joined

Results: TypeAlias = dict[str, Array]


class FunctionCall(NamedTuple):
    """One call of a function: its name in `roipool`, its arguments, and names for its results."""

    function: str
    arguments: dict[str, Any]
    returns: tuple[str, ...]


def run(
    case: Case,
    library: Any,
    operation: System | None = None,
    *,
    calls: list[FunctionCall] | None = None,
    **more: Any,
) -> Results:
    """Call a system's forward and backward functions.

    Parameters
    ----------
    library : module
        `roipool`, or an object with functions of the same names and signatures.
    operation : System, optional
        The system to call; by default the case's.
    calls : list, optional
        A list to which each `FunctionCall` is appended.
    **more
        Arguments that replace the case's, such as `argmax`.

    Returns
    -------
    dict
        Arrays in NCHW and native byte order: "pooled", "gradient" and, if the system has them,
        "box_gradient", "offset_gradient" and the argmax or argmax positions.
    """
    operation = operation or SYSTEMS[case.operation]
    known = {**known_arguments(case), **operation.boxes(case), **operation.fixed, **case.options}
    if "scale_ratio" in case.options:
        known["spatial_scale"] = case.scale
    if operation.pyramid:
        maps = divided(known["features"], case.layout)
        known["features"] = operation.pyramid(maps)
        known["input_shapes"] = operation.pyramid([level.shape for level in maps])
    if operation.is_volume:
        known |= volumes.arguments(case)
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
            calls.append(FunctionCall(function, arguments, returns))
        with warnings.catch_warnings():  # fractions that look like pixels are drawn, too
            warnings.filterwarnings("ignore", ".* all end at more than")
            returned = function_of(library, function)(**arguments)
        returned = returned if isinstance(returned, tuple) else (joined(returned, case.layout),)
        if arguments.get("out") is not None and returned[0] is not arguments["out"]:
            raise AssertionError(f"{function} does not return its out")
        # A function under test may return fewer or more results than the system's own.
        known.update(zip(returns[1:], returned[1:], strict=False))
        results.update(zip(returns, returned, strict=False))

    pooled_shape = in_layout_shape(case.grad.shape, case.layout)
    if operation.is_volume:
        pooled_shape = volumes.pooled_shape(case)
    call(operation.forward, operation.returns, pooled_shape)
    call(operation.backward, ("gradient",), known["input_shape"])
    if case.dtype not in INTEGERS:  # whose values no gradient takes
        call(operation.box_gradient, ("box_gradient",), ())
        call(operation.offset_gradient, ("offset_gradient",), ())
    if operation.argmax_is_of_batch and "argmax" in results:
        results["argmax"] = _in_each_map(case, results["argmax"])
    if operation.masks:
        results = masks.of_maps(case, operation.masks, results)
    return {
        name: to_nchw(volumes.as_maps(native(array), case.layout), case.layout)
        for name, array in results.items()
    }


def known_arguments(case: Case) -> dict[str, Any]:
    """Return values for the arguments that any system may take, except boxes and options."""
    store, known = STORAGES[case.storage].store, dtypes()
    rows, columns = case.size
    # The oracle reads the float64 of random calls after functions under test, which get a copy.
    maps = case.maps.astype(known[case.dtype], copy=case.maps.dtype == np.float64)
    return {
        "features": store(in_layout(maps, case.layout)),
        "grad_output": store(in_layout(case.grad.astype(known[case.pooled_dtype]), case.layout)),
        "input_shape": in_layout_shape(case.maps.shape, case.layout),
        "output_size": (rows, columns),
        "crop_size": (rows, columns),
        **dict.fromkeys(("pooled_h", "pooled_height", "output_height", "crop_height"), rows),
        **dict.fromkeys(("pooled_w", "pooled_width", "output_width", "crop_width"), columns),
        "layout": case.layout,
        "out": None,
    }


def _in_batch(case: Case, argmax: Array) -> Array:
    """Turn indices into single maps into indices into the whole batch."""
    cells, channels = math.prod(case.maps.shape[2:]), case.maps.shape[1]
    first = case.images[:, None] * channels + np.arange(channels)
    return np.where(argmax < 0, -1, argmax + first[:, :, None, None] * cells)


def _in_each_map(case: Case, argmax: Array) -> Array:
    """Turn indices into the whole batch into indices into single maps."""
    return np.where(argmax < 0, -1, argmax % max(1, math.prod(case.maps.shape[2:])))


def function_of(library: Any, name: str) -> Any:
    """Return a function by its dotted name; methods also take their class's arguments."""
    *path, last = name.split(".")
    for part in path:
        library = getattr(library, part)
    is_class = inspect.isclass(library)
    return method_of(library, last) if is_class else getattr(library, last)


@cache
def method_of(kind: type, name: str) -> Any:
    """Return a function that constructs an object and calls one of its methods."""
    of_class = inspect.signature(kind).parameters
    _, *of_method = inspect.signature(getattr(kind, name)).parameters.values()  # without self

    def call(**arguments: Any) -> Any:
        method, rest = _made(kind, name, arguments)
        return method(**rest)

    parameters = (*of_class.values(), *of_method)
    by_name = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return call


def bound(library: Any, name: str, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a function and its arguments; of a class, an object's method and the others."""
    *path, last = name.split(".")
    for part in path:
        library = getattr(library, part)
    is_class = inspect.isclass(library)
    return _made(library, last, arguments) if is_class else (getattr(library, last), arguments)


def _made(kind: type, name: str, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a method of an object made from its arguments among some, and the others."""
    of_class = inspect.signature(kind).parameters
    own = {key: value for key, value in arguments.items() if key in of_class}
    rest = {key: value for key, value in arguments.items() if key not in of_class}
    return getattr(kind(**own), name), rest


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _arguments_of(
    library: Any, function: str, known: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Select the arguments that the function takes, under the function's own names."""
    parameters = _parameters(inspect.unwrap(function_of(library, function)))
    wanted = ((own, names.get(own, own)) for own in parameters)
    return {own: known[name] for own, name in wanted if name in known}


def _result_array(case: Case, shape: tuple[int, ...]) -> Array | None:
    """Return an array to pass as `out`, filled with NaN, or None if the case has none."""
    if case.out == "new":
        return None
    return STORAGES[case.out].store(np.full(shape, np.nan, dtypes()[case.pooled_dtype]))


def in_layout_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return an NCHW shape in `layout`."""
    return (shape[0], *shape[2:], shape[1]) if layout == "NHWC" else tuple(shape)


def native(array: Array) -> Array:
    """Return an array in the machine's byte order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def to_nchw(array: Array, layout: str) -> Array:
    """Return an array of `layout` as NCHW; other than 4-D arrays have no layout."""
    return np.moveaxis(array, -1, 1) if layout == "NHWC" and array.ndim == 4 else array
