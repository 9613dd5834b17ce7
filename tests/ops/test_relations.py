"""Random calls of every operation on each backend: the oracle, and relations between calls.

On NumPy arrays `roipool.tools.random_calls` makes more of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.catalogue import OPERATIONS

from roipool.systems.case import Case
from roipool.verification.check import CALL, ORACLE, check
from roipool.verification.generate import draw

RELATIONS = (
    "layouts",
    "channels apart",
    "boxes apart",
    "boxes reversed",
    "images apart",
    "transposes",
    "differences",
)
CALLS = {"cpu": 200, "emulator": 40, "cuda": 200}  # the emulator is slow
MANY = 1000  # with --everything
SEED = 10


def calls(count: int, types: tuple[str, ...]) -> Iterator[tuple[int, Case]]:
    """Yield small calls on plain arrays, which every backend takes."""
    for number in range(count):
        case = draw(SEED, number, OPERATIONS, tiny=True, dtype=types[number % len(types)])
        yield number, replace(case, storage="plain", out="new", form="table", threads=1)


def check_calls(backend: Backend, *subjects: str) -> None:
    # Other types on the emulator are the catalogue's: compiling them takes longer than all calls.
    few = backend.name == "emulator" and not backend.everything
    types = ("float32",) if few else ("float32", "float16", "float64")
    for number, case in calls(MANY if backend.everything else CALLS[backend.name], types):
        for finding in check(case, subjects, backend.library):
            assert finding.comparison.problem is None, f"{number}, {case.operation}, {finding}"


def test_oracle(backend: Backend) -> None:
    check_calls(backend, CALL, ORACLE)


@pytest.mark.parametrize("relation", RELATIONS)
@thorough_on_the_emulator
def test_relations(backend: Backend, relation: str) -> None:
    check_calls(backend, relation)


def test_every_operation_is_called() -> None:
    called = {case.operation for _, case in calls(CALLS["emulator"], ("float32",))}
    assert called == set(OPERATIONS)
