"""Dask's guises: maps in random chunks, computed by several schedulers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dask
import dask.array as da
import numpy as np

import roipool
import roipool.dask
from roipool.systems.case import Array, Case
from roipool.verification.call import Results, run
from roipool.verification.relations import Comparisons

from . import Guise
from .adapters import Adapter, Arguments, retyped, same_in_type, with_boxes

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")


class Lazy(Adapter):
    """Forwards of chunked maps.

    Parameters
    ----------
    case : Case
        The call.
    scheduler : str
        Dask's scheduler.
    keep_order : bool
        Whether rows are in the order of boxes; otherwise they are reordered here.
    """

    def __init__(self, case: Case, scheduler: str, keep_order: bool = True) -> None:
        super().__init__(case)
        self.scheduler, self.keep_order = scheduler, keep_order

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
        given = self.converted(arguments)
        lazy = getattr(roipool, name)(**given, keep_order=self.keep_order)
        declared = lazy if isinstance(lazy, tuple) else (lazy,)
        computed = dask.compute(*declared, scheduler=self.scheduler, num_workers=2)
        for chunked, array in zip(declared, computed, strict=True):
            if (chunked.shape, chunked.dtype) != (array.shape, array.dtype):
                promise = f"{chunked.dtype} of shape {chunked.shape}"
                raise AssertionError(f"{promise} is declared, {array.dtype} {array.shape} computed")
        if not self.keep_order:
            order = np.argsort(roipool.dask.chunk_order(given["features"], self.case.images))
            computed = tuple(array[order] for array in computed)
        return computed if isinstance(lazy, tuple) else computed[0]

    def numpy(self, array: Array) -> Array:
        """Return an array unchanged."""
        return array


def _compared(case: Case, scheduler: str, keep_order: bool = True) -> Comparisons:
    case = replace(case, out="new")
    given = retyped(case, FLOATS, INTEGERS, np.random.default_rng(case.variation))
    operation = with_boxes(case, given).only_forward
    expected = run(case, roipool, operation)
    if "argmax" in expected:
        expected["argmax"] = expected["argmax"].astype(np.int64)
    yield from same_in_type(run(case, Lazy(case, scheduler, keep_order), operation), expected)


def one_after_another(case: Case, got: Results, library: Any) -> Comparisons:
    """Computed by one thread."""
    yield from _compared(case, "sync")


def threads(case: Case, got: Results, library: Any) -> Comparisons:
    """Computed by several threads."""
    yield from _compared(case, "threads")


def as_computed(case: Case, got: Results, library: Any) -> Comparisons:
    """Rows in the order of chunks."""
    yield from _compared(case, "sync", keep_order=False)


def processes(case: Case, got: Results, library: Any) -> Comparisons:
    """Computed by several processes."""
    yield from _compared(case, "processes")


GUISES = {
    "one after another": Guise(one_after_another, takes_bytes=True),
    "threads": Guise(threads, takes_bytes=True),
    "as computed": Guise(as_computed, takes_bytes=True),
    "processes": Guise(processes, seldom=200, takes_bytes=True),
}
