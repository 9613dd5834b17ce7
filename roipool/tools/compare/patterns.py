"""Finding what a user means by names, prefixes and patterns."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from fnmatch import fnmatchcase

__all__ = ["choose", "system_of"]


def system_of(name: str) -> str:
    """Return the system that an implementation computes: its name up to ``@``.

    A user's function, whose name has a colon, is a system of its own.
    """
    return name if ":" in name else name.partition("@")[0]


def choose(text: str | None, names: Collection[str]) -> list[str]:
    """Find the systems a user means, or the implementations where ``@`` tells them apart.

    Parameters
    ----------
    text : str or None
        Comma-separated names, prefixes that fit one system only, or patterns with ``*`` and
        ``?``. Upper and lower case are the same. None means every system.
    names : collection of str
        The implementations that there are.

    Returns
    -------
    list of str
        Systems, and members of `names` where a part has ``@``, in the order asked for, each once.

    Raises
    ------
    ValueError
        If a part fits no system, or a prefix fits several.
    """
    systems = list(dict.fromkeys(map(system_of, names)))
    if text is None:
        return systems
    parts = [part.strip() for part in text.split(",")]
    found = [
        name for part in parts if part for name in _matches(part, names if "@" in part else systems)
    ]
    if not found:
        raise ValueError(f"no system named; there are: {', '.join(systems)}")
    return list(dict.fromkeys(found))


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
        raise ValueError(f"there is no system {part!r}; {_suggested(lowered, systems)}")
    return matches


def _suggested(part: str, systems: Collection[str]) -> str:
    """Return what the user may have meant, or what there is."""
    by_text = {name.lower(): name for name in systems}
    by_text |= {name.partition(".")[0].lower(): name.partition(".")[0] + ".*" for name in systems}
    near = difflib.get_close_matches(part.removesuffix(".*"), by_text, 3, 0.7)
    if near:
        return f"did you mean {' or '.join(by_text[text] for text in near)}?"
    return f"there are: {', '.join(systems)}"
