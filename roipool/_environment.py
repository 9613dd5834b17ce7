"""Settings that come from environment variables."""

from __future__ import annotations

import os


def whole_number(variable: str, least: int, most: int) -> int | None:
    """Return an environment variable's number, or None where it is not set or empty."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(
            f"{variable} is {text!r}; it must be a whole number from {least} to {most}"
        )
    return int(text)
