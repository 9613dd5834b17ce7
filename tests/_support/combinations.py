"""Loops inside a test: over element types, layouts, whatever multiplies items without a subject.

``@each(layout=LAYOUTS)`` calls a test once per layout. Decorators add up to the product of their
values. All combinations are tried, and those that fail are reported together, each by name.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each(**values: Sequence[Any] | Mapping[str, Any]) -> Callable[[Test], Test]:
    """Return a decorator that calls a test with each value of one argument.

    A mapping names the values; otherwise they name themselves.
    """
    ((argument, given),) = values.items()
    named = given if isinstance(given, Mapping) else {str(value): value for value in given}

    def decorate(test: Test) -> Test:
        if not named:
            raise ValueError(f"{argument} has no values")
        body, inner = getattr(test, "_looped", (test, {}))
        loops = {argument: named, **inner}

        @functools.wraps(body)
        def looped(*args: Any, **kwargs: Any) -> None:
            _call_all(functools.partial(body, *args, **kwargs), loops)

        looped._looped = (body, loops)  # type: ignore[attr-defined]
        looped.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        looped.__signature__ = _without(loops, body)  # type: ignore[attr-defined]
        return looped

    return decorate


def _without(loops: Mapping[str, Any], test: Test) -> inspect.Signature:
    """Return the arguments that are left to pytest."""
    signature = inspect.signature(test)
    if unknown := loops.keys() - signature.parameters.keys():
        raise TypeError(f"{test.__name__} has no arguments {sorted(unknown)}")
    left = [value for name, value in signature.parameters.items() if name not in loops]
    return signature.replace(parameters=left)


def _call_all(test: Test, loops: Mapping[str, Mapping[str, Any]]) -> None:
    """Call a test with the product of all loops; raise what failed, else skip if any skipped."""
    failed: list[Exception] = []
    left_out: list[str] = []
    names: list[str] = []
    combinations = list(itertools.product(*(named.items() for named in loops.values())))
    for combination in combinations:
        name = " ".join(value_name for value_name, _ in combination)
        try:
            test(**dict(zip(loops, (value for _, value in combination), strict=True)))
        except pytest.skip.Exception as reason:
            left_out.append(f"{name}: {reason}")
        except Exception as error:  # noqa: BLE001 - a failed combination, whatever failed it
            error.add_note(f"with {', '.join(loops)} = {name}")
            failed.append(error)
            names.append(name)
    if failed:
        raise ExceptionGroup(
            f"{len(failed)} of {len(combinations)} combinations of {', '.join(loops)} fail: "
            + "; ".join(names),
            failed,
        )
    if left_out:
        pytest.skip(f"{len(left_out)} of {len(combinations)} combinations: {'; '.join(left_out)}")
