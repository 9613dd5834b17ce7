"""Calls of every row of ``roipool.systems`` that is in ``roipool.compat``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import roipool
from _support.compare import Array
from roipool.systems import SYSTEMS
from roipool.systems.case import Case
from roipool.verification.call import FunctionCall, function_of, run
from roipool.verification.generate import draw

ROWS = [name for name, row in SYSTEMS.items() if row.forward.startswith("compat.")]
# Arguments that hold the gradient of pooled values, by the functions' own names.
GRADIENTS = ("grad_output", "features")


class RowCall(NamedTuple):
    """A call of a row's function."""

    case: Case  # the call's description
    # The function; that of a method also takes the arguments of its class.
    function: Callable[..., Any]
    arguments: dict[str, Any]  # by name, in NumPy
    maps: str  # the argument that holds the features or, of a gradient, that of pooled values

    def expected(self) -> list[Array]:
        """Return the results of NumPy's call."""
        return results_of(self.function(**self.arguments))

    def with_arrays(self, convert: Callable[[Array], Any], *, only_maps: bool = False) -> Any:
        """Return the results of a call on converted arrays."""
        names = [self.maps] if only_maps else list(self.arguments)
        changed = {name: converted(self.arguments[name], convert) for name in names}
        return self.function(**{**self.arguments, **changed})


def converted(value: Any, convert: Callable[[Array], Any]) -> Any:
    """Return a value with its arrays converted, also those in lists and dictionaries."""
    if isinstance(value, np.ndarray):
        return convert(value)
    if isinstance(value, dict):
        return {key: converted(part, convert) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(converted(part, convert) for part in value)
    return value


def results_of(results: Any) -> list[Any]:
    """Return the arrays of one result, several, or those of a pyramid."""
    if isinstance(results, dict):
        results = list(results.values())
    if isinstance(results, (list, tuple)):
        return [one for part in results for one in results_of(part)]
    return [results]


def calls_of(
    row: str, *, dtype: str | None = None, only_forward: bool = False
) -> Iterator[RowCall]:
    """Yield the calls of a few cases, some with several images and boxes."""
    operation = SYSTEMS[row].only_forward if only_forward else SYSTEMS[row]
    for case in _cases(row, dtype):
        calls: list[FunctionCall] = []
        run(case, roipool, operation, calls=calls)
        for each in calls:
            given = {name: value for name, value in each.arguments.items() if name != "out"}
            own = {operation.names.get(name, name): name for name in given}
            maps = next(own[name] for name in GRADIENTS if name in own)
            yield RowCall(case, function_of(roipool, each.function), given, maps)


def _cases(row: str, dtype: str | None) -> Iterator[Case]:
    """Yield the first case of a row, and the first two with several images and boxes."""
    kind = dtype if dtype in SYSTEMS[row].dtypes else None
    found = 0
    for number in range(200):
        case = draw(3, number, [row], tiny=True, dtype=kind)
        has_several = case.maps.shape[0] > 1 and len(case.rois) > 1 and case.maps.size > 0
        found += has_several
        if number == 0 or has_several:
            yield case
        if found == 2:
            return
