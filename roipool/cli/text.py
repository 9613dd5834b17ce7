"""Formats results as text and JSON, and parses numbers of the command line."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

__all__ = ["as_strict_json", "finite", "printable", "seconds", "short"]


def short(value: float, digits: int = 3) -> str:
    """Format a number with few digits and a short exponent: 1.5e7, not 1.5e+07."""
    if math.isnan(value):
        return "-"
    mantissa, mark, exponent = f"{value:.{digits}g}".partition("e")
    return mantissa + mark + (str(int(exponent)) if mark else "")


def printable(text: str) -> str:
    """Escape control characters, which a file name may contain."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_strict_json(content: dict[str, Any]) -> str:
    """Format `content` as strict JSON in ASCII with a final newline; NaN and infinity are null."""
    return json.dumps(finite(content), indent=1, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Replace NaN and infinity, for which strict JSON has no literal, by None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def seconds(text: str) -> float:
    """Parse a time limit in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to 86400")
    return value
