"""Small calls: those with the options of an earlier call skip all checks.

The first call of a public function with some options is computed by its body, which checks them. If
its result is that of one average or maximum of the caller's own arrays, the engine's request is
kept, and later calls with these options hand their arrays to the engine at once, if it reads them
as they are. The first call on NumPy arrays does so, too, once its options are checked. Batch
indices beside boxes are such an array; as lists of numbers they are converted by every call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np

from roipool._boxes import TABLE_READERS, Form, Regions
from roipool._cpu import KeptCalls, PreparedCall, are_read, is_kept, keep_options
from roipool._request import KIND, LAST, Computed, Pooling


@contextmanager
def observed() -> Iterator[None]:
    """Let every call in a block be made by a `Call`, for programs that replace its methods."""
    keep_options(False)
    try:
        yield
    finally:
        keep_options(True)


def small_result(form: Form, arrays: Mapping[str, Any], pooling: Pooling, **kind: bool) -> Any:
    """Return the result of a call on NumPy arrays, computed as later ones with its options are.

    None if its arrays are not read as they are; then it is not kept. `kind` says which maximum it
    is, if it is one.
    """
    how, columns = TABLE_READERS.get(form.read), len(form.columns)
    maps, boxes, indices = arrays[form.features], arrays[form.boxes], arrays.get(form.indices)
    is_usual = how is not None and arrays.get("out") is None and is_kept(pooling)
    if not (is_usual and are_read(maps, boxes, indices, columns, how)):
        LAST.is_asked_for = LAST.needs_boxes  # who needs none is told nothing of this call
        return None
    if LAST.needs_boxes and (indices is not None or type(boxes) is not np.ndarray):
        return None
    kind = {**KIND, **(how or {}), **kind}
    prepared = PreparedCall(pooling, columns, None, **kind)
    result = prepared.result(maps, boxes, indices)
    if result is not None:
        results, own = result if isinstance(result, tuple) else (result,), Regions(boxes, None)
        given = maps, boxes
        LAST.call = Computed(
            results, given, indices, pooling, columns, None, kind, [maps], own, True, prepared
        )
    return result


def prepared_call(computed: Computed) -> PreparedCall:
    """Return what computes calls on NumPy arrays."""
    shape = None if computed.shapes is None else computed.shapes[0]
    return PreparedCall(computed.pooling, computed.columns, shape, **computed.kind)


def compute_and_keep(
    function: Callable[..., Any],
    kept: KeptCalls,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    prepare: Callable[[Computed], Any] = prepared_call,
    *,
    needs_boxes: bool = False,
) -> tuple[Any, Computed | None]:
    """Return the result of a function, and how it was computed if that is all; keep that.

    `prepare` returns what computes calls with the same options. With `needs_boxes`, how it was
    computed tells the boxes in any case.
    """
    LAST.is_asked_for, LAST.needs_boxes, LAST.call = True, needs_boxes, None
    try:
        result = function(*args, **kwargs)
        last = LAST.call
    finally:
        LAST.is_asked_for, LAST.call = False, None
    if last is None:
        return result, None
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(last.results) or not all(map(is_, results, last.results)):
        return result, None
    takes_indices = last.indices is None or type(last.indices) is np.ndarray
    is_small = last.is_kept and takes_indices and len(args) > 1
    given = last.given[:2]
    if is_small and (all(map(is_, args, given)) or all(map(_are_same, args, given))):
        kept.keep(args, kwargs, last.prepared or prepare(last), last.indices)
    return result, last


def _are_same(given: Any, other: Any) -> bool:
    """Return whether these are one object, or sequences of the same maps."""
    if given is other or type(given) not in (list, tuple) or type(other) is not list:
        return given is other
    return len(given) == len(other) and all(map(is_, given, other))


class SmallCalls:
    """Calls of a function on CuPy arrays, or on tensors; small ones skip all checks.

    Parameters
    ----------
    function : callable
        The function.
    compute : callable, optional
        What computes calls that are not small; by default the function.
    prepare : callable, optional
        Returns what computes small calls: by default, those on CuPy arrays (``_cuda.kept``).

    Attributes
    ----------
    kept : KeptCalls
        The small ones.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        compute: Callable[..., Any] | None = None,
        prepare: Callable[[Computed], Any] | None = None,
    ) -> None:
        self._compute, self._prepare = compute or function, prepare or small_call_on_gpu
        self.kept = KeptCalls()
        _, _, *others = (*inspect.signature(function).parameters, "", "")
        self._takes_shapes = others[0].startswith("input_shape") and ".ops." in function.__module__

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call.

        Neither levels nor the shapes of maps are options: another call may have others.
        """
        given, options = args, kwargs
        levels, shapes = kwargs.get("levels"), None
        if levels is not None:
            options = {name: value for name, value in kwargs.items() if name != "levels"}
        if self._takes_shapes and len(args) > 2 and type(args[2]) is tuple:
            shapes, given = args[2], (*args[:2], *args[3:])
        small = self.kept.prepared(given, options) if len(args) > 1 else None
        if small is not None:
            result = small(args[0], args[1], levels, shapes)
            if result is not None:
                return result

        def general(*_: Any, **__: Any) -> Any:
            return self._compute(*args, **kwargs)

        return compute_and_keep(general, self.kept, given, options, self._prepare)[0]


def small_call_on_gpu(computed: Computed) -> Any:
    """Return what computes calls on CuPy arrays, or None."""
    from roipool._cuda.kept import small_call  # imports CuPy, as the call has

    return small_call(computed)
