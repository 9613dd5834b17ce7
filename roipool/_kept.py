"""Small calls: those with the options of an earlier call skip all checks.

The first call of a public function with some options is computed by its body. If its result is that
of one average or maximum of the caller's own arrays, the engine's request is kept, and later calls
with these options hand their arrays to the engine at once, if it reads them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from roipool._cpu import KeptCalls, PreparedCall
from roipool._request import LAST, Computed


def prepared_call(computed: Computed) -> PreparedCall:
    """Return what computes calls on NumPy arrays."""
    return PreparedCall(computed.pooling, computed.columns, computed.shape, **computed.kind)


def compute_and_keep(
    function: Callable[..., Any],
    kept: KeptCalls,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    prepare: Callable[[Computed], Any] = prepared_call,
) -> Any:
    """Return the result of a function; keep how it was computed, as `prepare` prepares it."""
    LAST.is_asked_for, LAST.call = True, None
    try:
        result = function(*args, **kwargs)
        last = LAST.call
    finally:
        LAST.is_asked_for, LAST.call = False, None
    if last is not None:
        results = result if isinstance(result, tuple) else (result,)
        is_result = len(results) == len(last.results) and all(map(is_, results, last.results))
        if is_result and len(args) > 1 and all(map(is_, args, last.given)):
            kept.keep(args, kwargs, prepare(last))
    return result


class CallsOnGpu:
    """Calls of a function on CuPy arrays; small ones skip all checks: ``roipool._cuda.kept``.

    Attributes
    ----------
    kept : KeptCalls
        The small ones.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.kept = function, KeptCalls()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call."""
        small = self.kept.prepared(args, kwargs) if len(args) > 1 else None
        result = None if small is None else small(args[0], args[1])
        if result is None:
            return compute_and_keep(self._function, self.kept, args, kwargs, small_call_on_gpu)
        return result


def small_call_on_gpu(computed: Computed) -> Any:
    """Return what computes calls on CuPy arrays, or None."""
    from roipool._cuda.kept import small_call  # imports CuPy, as the call has

    return small_call(computed)
