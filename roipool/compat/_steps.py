"""Steps that the systems share: boxes with a batch column, and the engines with their rules."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Array, Regions
from roipool._arrays import array_module, contiguous, device_of, values_of
from roipool._backend import backend_of
from roipool._geometry import Geometry
from roipool._layout import Layout, Shape4
from roipool._threads import threads_for_call

# Where most systems' running maximum starts, in every type they compute in.
LOWEST_FLOAT32 = float(np.finfo(np.float32).min)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def speaking_of(
    **names: str,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function's error messages use its system's argument names for those of the core."""
    words = re.compile(rf"\b({'|'.join(names)})\b")

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return function(*args, **kwargs)
            except (TypeError, ValueError) as error:
                text = words.sub(lambda word: names[word[0]], str(error))
                raise type(error)(text) from error

        return call

    return decorate


def arrays(
    *names: str,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function compute where the arguments of these names are: all NumPy or all CuPy."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        every = list(inspect.signature(function).parameters)
        places = {name: every.index(name) for name in names}

        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            given = {
                name: args[place] if place < len(args) else kwargs.get(name)
                for name, place in places.items()
            }
            backend_of(**given)
            with device_of(*given.values()):
                return function(*args, **kwargs)

        return call

    return decorate


def single(name: str, value: Any) -> float:
    """Return a scale that the system keeps in float32 whatever the maps' type."""
    with np.errstate(over="ignore"):
        number = float(np.float32(check.real_number(name, value)))
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite in float32, got {value}")
    return number


def adaptive_if_not_positive(value: Any) -> tuple[int, int]:
    """Return a sampling ratio where the system takes any number below 1 as adaptive."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = max(int(value), 0)
    return check.sampling_pair(value)


def align_geometry(
    scale: float, sampling_ratio: Any, aligned: Any = False, definition: str = "roi_align"
) -> Geometry:
    """Return ROI align as the systems of Caffe2's family ask for it."""
    samples = adaptive_if_not_positive(sampling_ratio)
    return Geometry(definition, scale, samples, check.flag("aligned", aligned))


def numbered_boxes(
    name: str,
    rois: Any,
    images: int,
    dtype: np.dtype[Any],
    *,
    unknown_image: Literal["error", "zero"] = "error",
) -> Regions:
    """Return boxes of shape (K, 5) whose batch column is cut to a whole number, as in C.

    A box of an image that does not exist is an error, or pools to nothing and has no gradient; on
    a GPU, where numbers are not looked at, always the latter.
    """
    table = check.box_table(name, rois, (5,), "(K, 5): batch index, x1, y1, x2, y2")
    numbers = array_module(table).trunc(table[:, 0].astype(np.float64))
    known = values_of(numbers)
    if known is not None and unknown_image == "error" and of_no_image(known, images).any():
        row = int(np.flatnonzero(of_no_image(known, images))[0])
        raise ValueError(
            f"{name}[{row}, 0] is {table[row, 0]}, but the batch holds {images} images"
        )
    if isinstance(numbers, np.ndarray):
        numbers = np.where(of_no_image(numbers, images), -1, numbers).astype(np.int64)
    return Regions(check.coordinates(table[:, 1:], dtype), numbers)


def check_finite(name: str, table: Array) -> None:
    """Check that coordinates are finite, where they may be looked at."""
    known = values_of(table)
    if known is not None and not np.isfinite(known).all():
        row = int(np.argwhere(~np.isfinite(known))[0][0])
        raise ValueError(f"{name} must be finite, got {known[row]} in row {row}")


def of_no_image(numbers: Array, images: int) -> Array:
    """Return which image numbers name none of the batch's images."""
    return ~((numbers >= 0) & (numbers < images))


def pool_average(
    maps: Array,
    regions: Regions,
    geometry: Geometry,
    size: tuple[int, int],
    *,
    layout: Layout = "NCHW",
    empty_value: float = 0.0,
) -> Array:
    """Average forward."""
    return backend_of(maps=maps).average(
        maps,
        *regions,
        geometry,
        size,
        layout=layout,
        empty_value=empty_value,
        threads=threads_for_call(),
        out=None,
    )


def spread_average(
    gradient: Array,
    regions: Regions,
    geometry: Geometry,
    shape: Shape4,
    *,
    layout: Layout = "NCHW",
) -> Array:
    """Average backward."""
    check.match_gradient(gradient, len(regions.boxes), shape, layout)
    return backend_of(gradient=gradient).average_backward(
        gradient, *regions, geometry, shape, layout=layout, threads=threads_for_call(), out=None
    )


def pool_maximum(
    maps: Array,
    regions: Regions,
    geometry: Geometry,
    size: tuple[int, int],
    *,
    lowest: float = LOWEST_FLOAT32,
    empty_value: float = 0.0,
    winner_is_cell: bool = False,
    outside_is_zero: bool = False,
    nan_restarts: bool = False,
    return_argmax: bool = True,
) -> tuple[Array, Any]:
    """Maximum forward: values and winners, or None without `return_argmax`."""
    return backend_of(maps=maps).maximum(
        maps,
        *regions,
        geometry,
        size,
        layout="NCHW",
        lowest=lowest,
        empty_value=empty_value,
        winner_is_cell=winner_is_cell,
        outside_is_zero=outside_is_zero,
        return_argmax=return_argmax,
        threads=threads_for_call(),
        out=None,
        nan_restarts=nan_restarts,
    )


def spread_maximum(
    gradient: Array,
    argmax: Array,
    regions: Regions,
    geometry: Geometry | None,
    shape: Shape4,
    *,
    winner_is_cell: bool = False,
) -> Array:
    """Maximum backward; without a geometry every winning cell gets its whole gradient."""
    check.match_gradient(gradient, len(regions.boxes), shape, "NCHW")
    winners = check.winners(argmax, gradient.shape, shape[2] * shape[3] if winner_is_cell else None)
    return backend_of(gradient=gradient).maximum_backward(
        gradient,
        winners,
        *regions,
        geometry,
        shape,
        layout="NCHW",
        winner_is_cell=winner_is_cell,
        threads=threads_for_call(),
        out=None,
    )


def winner_positions(
    argmax: Array, regions: Regions, geometry: Geometry, shape: Shape4
) -> tuple[Array, Array]:
    """Return y and x, in map cells, of winning samples given by number."""
    return backend_of(argmax=argmax).locate(
        argmax, *regions, geometry, shape, threads=threads_for_call()
    )


def winner_numbers(
    y: Array, x: Array, regions: Regions, geometry: Geometry, shape: Shape4
) -> Array:
    """Return the numbers of the samples nearest to y and x; -1 where there is none."""
    real = regions.boxes.dtype
    return backend_of(y=y, x=x).identify(
        contiguous(y, real),
        contiguous(x, real),
        *regions,
        geometry,
        shape,
        threads=threads_for_call(),
    )


def same_shape(name: str, array: Any, gradient: Array) -> Array:
    """Return an array that tells the winners, one number for each pooled value."""
    values = check.number_array(name, array)
    if values.shape != gradient.shape:
        raise ValueError(
            f"{name} must have the gradient's shape {gradient.shape}, got {values.shape}"
        )
    return values
