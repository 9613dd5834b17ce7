"""Small calls: those with the options of an earlier call skip all checks.

The first call of a public function with some options is computed by its body. If its result is that
of one average or maximum of the caller's own arrays, the engine's request is kept, and later calls
with these options hand their arrays to the engine at once, if it reads them as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from roipool._cpu import KeptCalls, PreparedCall
from roipool._pooling import LAST, Computed


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
    if last is not None and _is_result_of(last, result, args):
        prepared = prepare(last)
        if prepared is not None:
            kept.keep(args, kwargs, prepared)
    return result


def _is_result_of(last: Computed, result: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a call's result is that of the engine, for its first two arguments."""
    results = result if isinstance(result, tuple) else (result,)
    given = args[:2]
    return (
        len(results) == len(last.results)
        and all(map(operator.is_, results, last.results))
        and len(given) == 2
        and all(map(operator.is_, given, last.given))
    )
