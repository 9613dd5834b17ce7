"""The contract of all front ends: one suite over (library, operation).

A library's test file has its :class:`FrontEnd`, and one class of the parts that it keeps::

    class TestContract(contract.CallsWithoutGuises, contract.Values):
        arrays = Others()

Tests of what one library alone has (compilers, exporters, streams, sharding) are in other files.
"""

from __future__ import annotations

from _support.cases import ALL_CASES

from .batches import Batches
from .calls import Calls, CallsWithoutGuises
from .derivatives import Derivatives
from .documented import Documented
from .errors import Errors, ErrorsOfGradients, Wrong, check
from .front_end import Form, FrontEnd, directly_and_compiled
from .integers import Integers
from .levels import ErrorsOfLevels, Levels
from .masks import Masks, MasksOfKnownValues
from .values import Values

__all__ = [
    "ALL_CASES",
    "Calls",
    "CallsWithoutGuises",
    "Documented",
    "Errors",
    "Everything",
    "Form",
    "FrontEnd",
    "Integers",
    "Levels",
    "Masks",
    "Values",
    "Wrong",
    "check",
    "directly_and_compiled",
]


class Everything(
    Calls,
    Values,
    Integers,
    MasksOfKnownValues,
    Derivatives,
    Batches,
    Levels,
    ErrorsOfLevels,
    Errors,
    ErrorsOfGradients,
):
    """All parts of the contract, for a library with differentiation."""
