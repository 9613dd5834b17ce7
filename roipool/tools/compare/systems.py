"""The systems of ``roipool compare``: computed by roipool, and by installed libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roipool import systems
from roipool.reference import Rules
from roipool.systems import COMPARED, RULES, Compared, asked_of
from roipool.tools.compare.patterns import system_of
from roipool.tools.libraries import LIBRARIES

__all__ = ["INSTALLED", "LISTED", "SYSTEMS", "VOLUME_SYSTEMS", "has_own_gradient", "rules_of"]


def _computed(is_volume: bool) -> dict[str, Compared]:
    """Return the systems that roipool computes, of maps or of volumes."""
    return {
        name: one
        for name, one in COMPARED.items()
        if one.row and one.rules and systems.SYSTEMS[one.row].is_volume == is_volume
    }


SYSTEMS = _computed(is_volume=False)
VOLUME_SYSTEMS = _computed(is_volume=True)
# The systems of maps that are computed unless the user chooses others.
LISTED = [name for name, one in SYSTEMS.items() if one.is_listed]
# For each library, its systems and the fields of its `Task` for each.
INSTALLED: dict[str, Mapping[str, Mapping[str, Any]]] = {
    library: {name: asked_of(one) for name, one in COMPARED.items() if library in one.libraries}
    for library in LIBRARIES
}


def rules_of(name: str) -> Rules | None:
    """Return the rules of an implementation by its name; None for a user's function."""
    return RULES.get(system_of(name))


def has_own_gradient(name: str, part: str) -> bool:
    """Return whether an implementation defines a gradient that its forward does not have."""
    compared = SYSTEMS.get(system_of(name))
    return compared is not None and part not in compared.oracle
