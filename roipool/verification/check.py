"""Makes one call and compares its results with the oracle and with related calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import roipool
from roipool.systems import SYSTEMS, volumes
from roipool.systems.case import Case, dtypes, in_layout
from roipool.systems.pyramids import joined
from roipool.verification.tolerance import Comparison

from .call import FunctionCall, Results, run
from .oracle import against_oracle, problem_of_types
from .relations import RELATIONS, Relation

ORACLE, CALL = "oracle", "call"  # subjects of findings, besides the names of relations


class Finding(NamedTuple):
    """One comparison: its subject (`CALL`, `ORACLE` or a relation), the result, and the outcome."""

    subject: str
    what: str
    comparison: Comparison


def subjects(case: Case, number: int) -> tuple[str, ...]:
    """Return the subjects that call `number` is compared with: the oracle and one relation.

    Calls that are too large for the oracle have work to divide among threads.
    """
    names = list(RELATIONS)
    if case.large or case.dtype in SYSTEMS[case.operation].without_oracle:
        return tuple(dict.fromkeys((CALL, "transposes", "threads", names[number % len(names)])))
    return CALL, ORACLE, names[number % len(names)]


def check(
    case: Case,
    with_what: Sequence[str],
    library: Any = roipool,
    relation_of: Callable[[str], Relation] = RELATIONS.__getitem__,
) -> Iterator[Finding]:
    """Make a call and compare its results.

    Parameters
    ----------
    with_what : sequence of str
        Subjects: `CALL`, `ORACLE`, and names of relations.
    library : module
        `roipool`, or an object with functions of the same names.
    relation_of : callable
        Maps the name of a relation to its function; by default looks it up in `RELATIONS`.

    Yields
    ------
    Finding
        An exception is reported as a finding with a problem.
    """
    subject = CALL
    before = library.get_num_threads()
    library.set_num_threads(case.threads)
    calls: list[FunctionCall] = []
    try:
        got = run(case, library, calls=calls)
        if CALL in with_what:
            yield Finding(CALL, "types and arguments", _verdict(_misuse(case, got, calls)))
        for subject in with_what:
            if subject == ORACLE:
                comparisons = against_oracle(case, got)
            elif subject != CALL:
                comparisons = relation_of(subject)(case, got, library)
            else:
                continue
            for what, comparison in comparisons:
                yield Finding(subject, what, comparison)
    except Exception as error:  # noqa: BLE001 - valid arguments must not raise anything
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        yield Finding(subject, "exception", _verdict(problem))
    finally:
        library.set_num_threads(before)


def _verdict(problem: str | None) -> Comparison:
    wrong = int(problem is not None)
    return Comparison(1, 1 - wrong, wrong, float(np.inf) if wrong else 0.0, problem)


def _misuse(case: Case, got: Results, calls: Sequence[FunctionCall]) -> str | None:
    """Return the problem with result types, missing results or modified inputs, or None."""
    given = {
        "features": case.maps.astype(dtypes()[case.dtype]),
        "grad_output": case.grad.astype(dtypes()[case.pooled_dtype]),
    }
    for call in calls:
        for name in given.keys() & call.arguments.keys():
            wanted = in_layout(given[name], case.layout)
            left = volumes.as_maps(joined(call.arguments[name], case.layout), case.layout)
            left = left.astype(wanted.dtype)
            if not np.array_equal(left, wanted, equal_nan=True):
                return f"{call.function} modified its {name}"
    absent = {name for call in calls for name in call.returns} - got.keys()
    if absent:
        return f"{', '.join(sorted(absent))} is not returned"
    return problem_of_types(case, got)
