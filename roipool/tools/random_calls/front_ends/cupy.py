"""CuPy's guises: arrays on a GPU, compared with the oracle or, in large calls, with NumPy.

A GPU sums in another order, so results are compared with tolerances. Only functions of CuPy are
used, so that tests can replace it by the emulator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

import roipool
from roipool.systems import SYSTEMS, System
from roipool.systems.case import Array, Case
from roipool.verification.call import Results, function_of, run
from roipool.verification.oracle import against_oracle
from roipool.verification.relations import Comparisons, close

from . import Guise
from .adapters import BOXES, INDICES, Adapter, Arguments

FLOATS = ("float64", "float32", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")


def contiguous(array: Array) -> Any:
    """Return an array on the GPU."""
    return cupy.asarray(np.ascontiguousarray(array))


def every_second(array: Array) -> Any:
    """Return a strided view, with gaps between the numbers."""
    return contiguous(np.repeat(array, 2, -1))[..., ::2] if array.ndim else contiguous(array)


def reverse(array: Array) -> Any:
    """Return a view with negative strides."""
    return contiguous(array[::-1])[::-1]


def turned(array: Array) -> Any:
    """Return a view with another order of axes in memory; maps in channels last."""
    order = (0, *range(2, array.ndim), 1) if array.ndim > 1 else (0,)
    return contiguous(array.transpose(order)).transpose([order.index(n) for n in range(array.ndim)])


def inside(array: Array) -> Any:
    """Return a view into a larger array, at an offset."""
    return contiguous(np.pad(array, [(1, 2)] * array.ndim))[(slice(1, -2),) * array.ndim]


STORES = (contiguous, every_second, reverse, turned, inside)


class OnGpu(Adapter):
    """Functions of arrays on a GPU.

    Parameters
    ----------
    stores : sequence of callable
        Memory layouts of arrays on the GPU.
    any_types : bool
        Whether boxes, indices and argmax have random types that hold them.
    """

    def __init__(
        self,
        case: Case,
        stores: Sequence[Callable[[Array], Any]] = (contiguous,),
        any_types: bool = False,
    ) -> None:
        super().__init__(case)
        self.stores, self.any_types = stores, any_types

    def array(self, name: str, value: Any) -> Any:
        """Return an argument's array on the GPU."""
        array = self.table(value)
        if self.any_types and name in (*BOXES, *INDICES, "argmax"):
            array = self._of_any_type(array, FLOATS if name in BOXES else INTEGERS)
        return self.stores[int(self.rng.integers(len(self.stores)))](array)

    def _of_any_type(self, array: Array, names: Sequence[str]) -> Array:
        """Return an array in one of the types that hold its numbers."""
        with np.errstate(all="ignore"):
            cast = [array.astype(name) for name in names]
        held = [
            one for one in cast if np.array_equal(one, array, equal_nan=array.dtype.kind == "f")
        ]
        return held[int(self.rng.integers(len(held)))]

    def numpy(self, array: Any) -> Array:
        """Return an array's values."""
        return cupy.asnumpy(array)


class IntoOut(OnGpu):
    """Functions with `out`, an array filled with NaN."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a function twice, the second time with `out`."""
        function = function_of(roipool, name)
        given = self.own_names(name, self.converted(arguments))
        made = function(**given)
        if "out" not in inspect.signature(function).parameters:
            return made
        first = made[0] if isinstance(made, tuple) else made
        own = (
            [self._filled(one) for one in first] if isinstance(first, list) else self._filled(first)
        )
        results = function(**{**given, "out": own})
        returned = results[0] if isinstance(results, tuple) else results
        if not all(a is b for a, b in zip(_each(returned), _each(own), strict=True)):
            raise AssertionError(f"{name} does not return its out")
        return results

    def _filled(self, like: Any) -> Any:
        filled = cupy.empty(like.shape, like.dtype)
        filled.fill(np.nan)
        return filled


def _each(arrays: Any) -> list[Any]:
    return arrays if isinstance(arrays, list) else [arrays]


# ---- Guises


def answered(case: Case, adapter: OnGpu) -> Comparisons:
    """Make a call through an adapter, and compare with the oracle, or with NumPy's call."""
    operation: System = SYSTEMS[case.operation]
    got: Results = run(case, adapter, operation)
    if case.large or case.dtype in operation.without_oracle:
        yield from close(case, got, run(case, roipool, operation), roipool)
    else:
        yield from against_oracle(case, got)


def _plain(case: Case) -> Case:
    return replace(case, out="new", storage="plain")


def as_written(case: Case, got: Results, library: Any) -> Comparisons:
    """C-contiguous arrays."""
    case = _plain(case)
    yield from answered(case, OnGpu(case))


def memory(case: Case, got: Results, library: Any) -> Comparisons:
    """Views with various strides and offsets."""
    case = _plain(case)
    yield from answered(case, OnGpu(case, STORES))


def types(case: Case, got: Results, library: Any) -> Comparisons:
    """Boxes, indices and argmax in various types."""
    with np.errstate(over="ignore"):
        held = _plain(replace(case, rois=case.rois.astype(np.float16).astype(np.float64)))
    yield from answered(held, OnGpu(held, any_types=True))


def out(case: Case, got: Results, library: Any) -> Comparisons:
    """Results in the caller's arrays."""
    case = _plain(case)
    yield from answered(case, IntoOut(case))


GUISES = {
    "as written": Guise(as_written, takes_integers=True),
    "memory": Guise(memory, takes_integers=True),
    "types": Guise(types, takes_integers=True),
    "out": Guise(out, takes_integers=True),
}
