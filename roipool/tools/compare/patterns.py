"""Selects systems by names, prefixes and patterns."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from fnmatch import fnmatchcase

__all__ = ["candidates", "choose", "system_of"]


def system_of(name: str) -> str:
    """Return the system that an implementation computes: its name up to ``@``.

    A user's function, whose name contains a colon, counts as a system.
    """
    return name if ":" in name else name.partition("@")[0]


def choose(text: str | None, names: Collection[str]) -> list[str]:
    """Select systems, or single implementations by names with ``@``.

    Parameters
    ----------
    text : str or None
        Comma-separated names, unique prefixes, or patterns with ``*`` and ``?``, ignoring case.
        None selects every system.

    Returns
    -------
    list of str
        Systems, and members of `names` for parts with ``@``, without duplicates, in the order of
        `text`.

    Raises
    ------
    ValueError
        If a part matches no system, or a prefix matches several.
    """
    systems = list(dict.fromkeys(map(system_of, names)))
    if text is None:
        return systems
    parts = [part.strip() for part in text.split(",")]
    chosen = [
        name for part in parts if part for name in _matches(part, names if "@" in part else systems)
    ]
    if not chosen:
        raise ValueError(f"no system given; choose from {', '.join(systems)}")
    return list(dict.fromkeys(chosen))


def candidates(part: str, systems: Collection[str]) -> list[str]:
    """Return the systems that one name, prefix or pattern may mean."""
    lowered = part.lower()
    exact = [name for name in systems if name.lower() == lowered]
    if exact:
        return exact
    if _is_pattern(part):
        # Square brackets are part of names and must not open a character class.
        pattern = lowered.replace("[", "[[]")
        return [name for name in systems if fnmatchcase(name.lower(), pattern)]
    return [name for name in systems if name.lower().startswith(lowered)]


def _is_pattern(part: str) -> bool:
    return "*" in part or "?" in part


def _matches(part: str, systems: Collection[str]) -> list[str]:
    matches = candidates(part, systems)
    if len(matches) > 1 and not _is_pattern(part):
        raise ValueError(f"{part!r} matches several systems: {', '.join(matches)}")
    if not matches:
        raise ValueError(f"there is no system {part!r}; {_suggested(part.lower(), systems)}")
    return matches


def _suggested(part: str, systems: Collection[str]) -> str:
    """Return similar names, or all names."""
    by_text = {name.lower(): name for name in systems}
    by_text |= {name.partition(".")[0].lower(): name.partition(".")[0] + ".*" for name in systems}
    near = difflib.get_close_matches(part.removesuffix(".*"), by_text, 3, 0.7)
    if near:
        return f"did you mean {' or '.join(by_text[text] for text in near)}?"
    return f"choose from {', '.join(systems)}"
