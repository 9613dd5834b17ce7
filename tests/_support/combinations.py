"""Loops inside a test: over element types, layouts, whatever multiplies items without a subject.

``@each(layout=LAYOUTS)`` calls a test once per layout. Decorators multiply.
All combinations are tried, and those that fail are reported together, each by name.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each(
    where: Callable[..., bool] | None = None, **values: Sequence[Any] | Mapping[str, Any]
) -> Callable[[Test], Test]:
    """Return a decorator that calls a test with every combination of values of its arguments.

    A mapping names the values; otherwise they name themselves. `where` is called with all arguments
    of the test and says whether a combination is one to try; one at least must be. Of several
    decorators, each may leave out some.
    """
    named = {
        argument: given if isinstance(given, Mapping) else {str(value): value for value in given}
        for argument, given in values.items()
    }

    def decorate(test: Test) -> Test:
        body, inner, conditions = getattr(test, "_looped", (test, {}, ()))
        loops = {**named, **inner}
        conditions = (*conditions, where) if where else conditions

        @functools.wraps(body)
        def looped(*itself: Any, **given: Any) -> None:
            combinations = [
                combination
                for combination in itertools.product(*(loop.items() for loop in loops.values()))
                if all(each_of(**given, **_arguments(loops, combination)) for each_of in conditions)
            ]
            _call_all(functools.partial(body, *itself, **given), loops, combinations)

        looped._looped = (body, loops, conditions)  # type: ignore[attr-defined]
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


Combination = tuple[tuple[str, Any], ...]  # the name and the value of each argument


def _arguments(loops: Iterable[str], combination: Combination) -> dict[str, Any]:
    return dict(zip(loops, (value for _, value in combination), strict=True))


def _call_all(test: Test, loops: Iterable[str], combinations: Sequence[Combination]) -> None:
    """Call a test with all combinations; raise what failed, else skip if any was skipped."""
    if not combinations:
        raise ValueError(f"no combination of {', '.join(loops)} to try")
    failed: list[Exception] = []
    left_out: list[str] = []
    names: list[str] = []
    for combination in combinations:
        name = " ".join(value_name for value_name, _ in combination)
        try:
            test(**_arguments(loops, combination))
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
