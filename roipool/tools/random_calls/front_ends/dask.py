"""Dask's guises: maps in random chunks, computed by several schedulers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dask
import dask.array as da
import numpy as np

import roipool
from roipool.systems.case import Array, Case
from roipool.verification.call import Results, run
from roipool.verification.relations import Comparisons

from . import Guise
from .adapters import Adapter, Arguments, retyped, same_in_type, with_boxes

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")


class Lazy(Adapter):
    """Forwards of chunked maps."""

    def __init__(self, case: Case, scheduler: str) -> None:
        super().__init__(case)
        self.scheduler = scheduler

    def array(self, name: str, value: Any) -> Any:
        """Divide maps into chunks; return other arguments unchanged."""
        if name != "features":
            return value
        return da.from_array(value, chunks=tuple(self._parts(size) for size in value.shape))

    def _parts(self, size: int) -> tuple[int, ...]:
        """Return the chunk sizes of an axis, without empty chunks unless the axis is empty."""
        cuts = self.rng.integers(1, max(size, 2), int(self.rng.integers(4)))
        ends = np.unique(np.minimum([*cuts, size], size))
        return tuple(int(part) for part in np.diff(ends, prepend=0))

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a forward; check the declared shapes and types against the computed ones."""
        lazy = self.public(name)(**self.converted(arguments))
        declared = lazy if isinstance(lazy, tuple) else (lazy,)
        computed = dask.compute(*declared, scheduler=self.scheduler, num_workers=2)
        for chunked, array in zip(declared, computed, strict=True):
            if (chunked.shape, chunked.dtype) != (array.shape, array.dtype):
                promise = f"{chunked.dtype} of shape {chunked.shape}"
                raise AssertionError(f"{promise} is declared, {array.dtype} {array.shape} computed")
        return computed if isinstance(lazy, tuple) else computed[0]

    def numpy(self, array: Array) -> Array:
        """Return an array unchanged."""
        return array


def _compared(case: Case, scheduler: str) -> Comparisons:
    case = replace(case, out="new")
    given = retyped(case, FLOATS, INTEGERS, np.random.default_rng(case.variation))
    operation = with_boxes(case, given).only_forward
    expected, got = run(case, roipool, operation), run(case, Lazy(case, scheduler), operation)
    for name, array in expected.items():
        if array.dtype.kind == "i" and got[name].dtype == np.int64:  # an argmax of any chunk
            expected[name] = array.astype(np.int64)
    yield from same_in_type(got, expected)


def one_after_another(case: Case, got: Results, library: Any) -> Comparisons:
    """Computed by one thread."""
    yield from _compared(case, "sync")


def threads(case: Case, got: Results, library: Any) -> Comparisons:
    """Computed by several threads."""
    yield from _compared(case, "threads")


def processes(case: Case, got: Results, library: Any) -> Comparisons:
    """Computed by several processes."""
    yield from _compared(case, "processes")


GUISES = {
    "one after another": Guise(one_after_another, takes_integers=True),
    "threads": Guise(threads, takes_integers=True),
    "processes": Guise(processes, seldom=200, takes_integers=True),
}
