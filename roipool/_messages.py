"""Values in error messages, of any size."""

from __future__ import annotations

from typing import Any

_MAX_LENGTH = 200


def shown(value: Any) -> str:
    """Return how a message shows a value: its ``repr``, shortened."""
    try:
        return shortened(repr(value))
    except Exception:  # noqa: BLE001 - a value's own, or an int of thousands of digits
        return f"a value of type {type(value).__name__}"


def shortened(text: str) -> str:
    """Return a text, or its beginning if it is long."""
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
