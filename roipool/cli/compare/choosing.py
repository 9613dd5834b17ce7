"""Finding what a user means by names, prefixes and patterns."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

__all__ = ["choose", "system_of"]


def system_of(name: str) -> str:
    """Return the system that an implementation computes: its name up to ``@``."""
    return name.partition("@")[0]


def choose(text: str | None, systems: Collection[str]) -> list[str]:
    """Find the systems a user means.

    Parameters
    ----------
    text : str or None
        Comma-separated names, prefixes that fit one system only, or patterns with ``*`` and
        ``?``. Upper and lower case are the same. None means every system.
    systems : collection of str
        Those that there are.

    Returns
    -------
    list of str
        Members of `systems` in the order asked for, each once.

    Raises
    ------
    ValueError
        If a part fits no system, or a prefix fits several.
    """
    if text is None:
        return list(systems)
    parts = [part.strip() for part in text.split(",")]
    names = [name for part in parts if part for name in _matches(part, systems)]
    if not names:
        raise ValueError(f"no system named; there are: {', '.join(systems)}")
    return list(dict.fromkeys(names))


def _matches(part: str, systems: Collection[str]) -> list[str]:
    lowered = part.lower()
    exact = [name for name in systems if name.lower() == lowered]
    if exact:
        return exact
    if "*" in lowered or "?" in lowered:
        # Square brackets belong to the names, so they must not open a character class.
        pattern = lowered.replace("[", "[[]")
        matches = [name for name in systems if fnmatchcase(name.lower(), pattern)]
    else:
        matches = [name for name in systems if name.lower().startswith(lowered)]
        if len(matches) > 1:
            raise ValueError(f"{part!r} fits several systems: {', '.join(matches)}")
    if not matches:
        raise ValueError(f"there is no system {part!r}; there are: {', '.join(systems)}")
    return matches
