"""One call, compared with all that it must agree with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import roipool
from roipool.systems import SYSTEMS
from roipool.verification.tolerance import Comparison

from .call import Call, Results, in_layout, run
from .case import Case, dtypes
from .oracle import against_oracle, problem_of_types
from .pyramids import joined
from .relations import RELATIONS, Relation

ORACLE, CALL = "oracle", "call"  # what a comparison is with, besides the names of relations


class Finding(NamedTuple):
    """One comparison: with what, of which result, and how it came out."""

    subject: str
    what: str
    comparison: Comparison


def subjects(case: Case, number: int) -> tuple[str, ...]:
    """Return what call `number` is compared with: the oracle, and relations in turn."""
    names = list(RELATIONS)
    if case.large or case.dtype in SYSTEMS[case.operation].without_oracle:
        return tuple(dict.fromkeys((CALL, "transposes", names[number % len(names)])))
    return CALL, ORACLE, names[number % len(names)]


def check(
    case: Case,
    with_what: Sequence[str],
    library: Any = roipool,
    relation_of: Callable[[str], Relation] = RELATIONS.__getitem__,
) -> Iterator[Finding]:
    """Make a call and compare.

    Parameters
    ----------
    case : Case
        The call.
    with_what : sequence of str
        `CALL`, `ORACLE`, and names of relations.
    library : module
        `roipool`, or an object with functions of the same names.
    relation_of : callable
        From the name of a relation to the function that compares; by default those of `RELATIONS`.

    Yields
    ------
    Finding
        An exception is one with a problem.
    """
    subject = CALL
    before = library.get_num_threads()
    library.set_num_threads(case.threads)
    calls: list[Call] = []
    try:
        got = run(case, library, calls=calls)
        if CALL in with_what:
            yield Finding(CALL, "types and arguments", _verdict(_misuse(case, got, calls)))
        for subject in with_what:
            if subject == ORACLE:
                found = against_oracle(case, got)
            elif subject != CALL:
                found = relation_of(subject)(case, got, library)
            else:
                continue
            for what, comparison in found:
                yield Finding(subject, what, comparison)
    except Exception as error:  # noqa: BLE001 - whatever it is, arguments of the space must not raise
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        yield Finding(subject, "exception", _verdict(problem))
    finally:
        library.set_num_threads(before)


def _verdict(problem: str | None) -> Comparison:
    wrong = int(problem is not None)
    return Comparison(1, 1 - wrong, wrong, float(np.inf) if wrong else 0.0, problem)


def _misuse(case: Case, got: Results, calls: Sequence[Call]) -> str | None:
    """Return what is wrong with types, or with an array that was to be read only."""
    dtype = dtypes()[case.dtype]
    given = {"features": case.maps, "grad_output": case.grad}
    for call in calls:
        for name in given.keys() & call.arguments.keys():
            wanted = in_layout(given[name].astype(dtype), case.layout)
            left = joined(call.arguments[name], case.layout).astype(dtype)
            if not np.array_equal(left, wanted, equal_nan=True):
                return f"{call.function} has changed its {name}"
    absent = {name for call in calls for name in call.returns} - got.keys()
    if absent:
        return f"{', '.join(sorted(absent))} is not returned"
    return problem_of_types(case, got)
