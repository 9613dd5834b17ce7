"""Loops inside a test, over parameters such as types and layouts that would multiply test items.

``@each(layout=LAYOUTS)`` calls a test once per layout. Several decorators form a product. All
combinations run, and failures are reported together, by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

Test = Callable[..., None]
Values = Sequence[Any] | Mapping[str, Any]
Loops = Mapping[str, Values | Callable[..., Values]]  # argument -> values, outermost loop first


def each(
    where: Callable[..., bool] | None = None, **values: Values | Callable[..., Values]
) -> Callable[[Test], Test]:
    """Return a decorator that calls a test with every combination of values of its arguments.

    The keys of a mapping name its values; other values are named by their text. A function computes
    the values from the other arguments: pytest's, and those of outer loops. `where` takes all
    arguments of the test and returns whether to run a combination; at least one must run. Each of
    several decorators may exclude combinations.
    """

    def decorate(test: Test) -> Test:
        body, inner, conditions = getattr(test, "_looped", (test, {}, ()))
        loops = {**values, **inner}
        conditions = (*conditions, where) if where else conditions

        @functools.wraps(body)
        def looped(*itself: Any, **given: Any) -> None:
            combinations = [
                combination
                for combination in _combinations(loops, given)
                if all(runs(**given, **_arguments(loops, combination)) for runs in conditions)
            ]
            _call_all(functools.partial(body, *itself, **given), loops, combinations)

        looped._looped = (body, loops, conditions)  # type: ignore[attr-defined]
        looped.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        looped.__signature__ = _without(loops, body)  # type: ignore[attr-defined]
        return looped

    return decorate


def _without(loops: Loops, test: Test) -> inspect.Signature:
    """Return the signature without the loops' arguments, for pytest."""
    signature = inspect.signature(test)
    if unknown := loops.keys() - signature.parameters.keys():
        raise TypeError(f"{test.__name__} has no arguments {sorted(unknown)}")
    left = [value for name, value in signature.parameters.items() if name not in loops]
    return signature.replace(parameters=left)


Combination = tuple[tuple[str, Any], ...]  # name and value of each argument


def _combinations(loops: Loops, given: Mapping[str, Any]) -> Iterator[Combination]:
    if not loops:
        yield ()
        return
    (argument, values), *others = loops.items()
    found = values(**given) if callable(values) else values
    named = found if isinstance(found, Mapping) else {str(value): value for value in found}
    for name, value in named.items():
        for rest in _combinations(dict(others), {**given, argument: value}):
            yield ((name, value), *rest)


def _arguments(loops: Loops, combination: Combination) -> dict[str, Any]:
    return dict(zip(loops, (value for _, value in combination), strict=True))


def _call_all(test: Test, loops: Loops, combinations: Sequence[Combination]) -> None:
    """Call a test with all combinations; raise failures together, or skip if any was skipped."""
    if not combinations:
        raise ValueError(f"no combination of {', '.join(loops)} to try")
    failed: list[BaseException] = []
    left_out: list[str] = []
    names: list[str] = []
    for combination in combinations:
        name = " ".join(value_name for value_name, _ in combination)
        try:
            test(**_arguments(loops, combination))
        except pytest.skip.Exception as reason:
            left_out.append(f"{name}: {reason}")
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported below
            error.add_note(f"with {', '.join(loops)} = {name}")
            failed.append(error)
            names.append(name)
    if failed:
        raise BaseExceptionGroup(
            f"{len(failed)} of {len(combinations)} combinations of {', '.join(loops)} fail: "
            + "; ".join(names),
            failed,
        )
    if left_out:
        pytest.skip(f"{len(left_out)} of {len(combinations)} combinations: {'; '.join(left_out)}")
