"""Drawn calls as front ends get them: a call of NumPy's, "in a guise" of a library.

A guise is a relation, as in `relations`: it makes the case's call on the arrays of its library, in
one of the ways in which the library calls roipool, and compares the answers with NumPy's. It
chooses what a case leaves open, such as types of boxes or strides, with the case's `variation`.
There is a module of guises for each library, which only the calls that want it import.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from roipool._definitions import PYRAMID_OPS
from roipool.systems.core import VARIANTS
from roipool.verification.relations import RELATIONS, Relation

LIBRARIES = ("torch", "jax", "dask", "cupy")
# Front ends have the core's operations.
FRONT_END_ROWS = (*VARIANTS, *PYRAMID_OPS)
# JAX makes several devices of one processor if it is told so before it starts.
TWO_DEVICES = "--xla_force_host_platform_device_count=2"


class Guise(NamedTuple):
    """One way to make a call.

    Attributes
    ----------
    relation : callable
        Makes it, and compares.
    seldom : int
        0, or of how many calls it is one, because it is slow.
    """

    relation: Relation
    seldom: int = 0


def guises(library: str) -> Mapping[str, Guise]:
    """Return the guises of a library by name: ``"torch: vmap"``, for example."""
    if library == "jax" and "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", TWO_DEVICES)
    found = importlib.import_module(f"{__name__}.{library}").GUISES
    return {f"{library}: {name}": guise for name, guise in found.items()}


def guises_of_call(number: int, libraries: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the guises of call `number`: one of each library, in turn."""
    chosen = []
    for library in libraries:
        every = guises(library)
        seldom = [name for name, one in every.items() if one.seldom and number % one.seldom == 0]
        usual = [name for name, one in every.items() if not one.seldom]
        chosen.append((seldom or usual)[number % len(seldom or usual)])
    return tuple(chosen)


def relation_of(subject: str) -> Relation:
    """Return the relation or guise of that name."""
    library, colon, _ = subject.partition(": ")
    return guises(library)[subject].relation if colon else RELATIONS[subject]
