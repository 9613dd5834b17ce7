"""Random calls through front ends.

A guise is a relation (see `verification.relations`): it makes the case's call on the arrays of a
library, in one of the ways in which the library calls roipool, and compares the results with
NumPy's. Choices that the case leaves open, such as types of boxes or strides, are seeded by the
case's `variation`. Each library has a module of guises, imported only when needed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from roipool._definitions import PYRAMID_OPS
from roipool.systems import SYSTEMS, masks
from roipool.systems.core import OPERATIONS
from roipool.verification.relations import RELATIONS, Relation

LIBRARIES = ("torch", "jax", "dask", "cupy")
DIFFERENTIATED = ("torch", "jax")  # those with gradients of their own
# The operations of front ends: the core's, and the systems of `compat`. Codes of numbers are no
# numbers, which guises could differentiate or halve.
FRONT_END_ROWS = (*OPERATIONS, *PYRAMID_OPS, *masks.OF_CORE)
COMPAT_ROWS = tuple(name for name, row in SYSTEMS.items() if "." in name and not row.returns_codes)
# To draw from: `draw` takes each of the core's three times, so that both are drawn equally often.
ROWS = FRONT_END_ROWS * round(len(COMPAT_ROWS) / (3 * len(FRONT_END_ROWS))) + COMPAT_ROWS
# Makes JAX divide a processor into several devices; must be set before it starts.
TWO_DEVICES = "--xla_force_host_platform_device_count=2"


class Guise(NamedTuple):
    """One way of making a call through a library."""

    relation: Relation  # makes the call and compares
    seldom: int = 0  # a slow guise is used for one in so many calls; 0 otherwise
    takes_integers: bool = False  # whether maps may be of bytes, which have no gradient


def guises(library: str) -> Mapping[str, Guise]:
    """Return the guises of a library by name, such as ``"torch: vmap"``."""
    if library == "jax" and "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", TWO_DEVICES)
    by_name = importlib.import_module(f"{__name__}.{library}").GUISES
    return {f"{library}: {name}": guise for name, guise in by_name.items()}


def guises_of_call(number: int, libraries: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the guises of call `number`: one of each library, in rotation."""
    chosen = []
    for library in libraries:
        by_name = guises(library)
        seldom = [
            name for name, guise in by_name.items() if guise.seldom and number % guise.seldom == 0
        ]
        usual = [name for name, guise in by_name.items() if not guise.seldom]
        chosen.append((seldom or usual)[number % len(seldom or usual)])
    return tuple(chosen)


def take_bytes(subjects: Sequence[str]) -> bool:
    """Return whether maps may be of bytes in all of these guises."""
    return all(guises(name.partition(": ")[0])[name].takes_integers for name in subjects)


def relation_of(subject: str) -> Relation:
    """Return a relation or guise by its name."""
    library, colon, _ = subject.partition(": ")
    return guises(library)[subject].relation if colon else RELATIONS[subject]
