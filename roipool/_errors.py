"""Error messages: values in them, of any size, and the name of the operation before them."""

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


def with_name(error: Exception, operation: str, *, is_traced: bool = False) -> Exception:
    """Return an error with the name of an operation before its text, unless it has one already.

    Subclasses, which other libraries raise with more in them than a text, stay as they are.
    That of a private function, which does a layer's work, is shown without its underscore.
    `is_traced` says that a compiler traces the call: it knows no attributes of errors.
    """
    operation = operation.lstrip("_")
    is_argument_error = type(error) in (TypeError, ValueError) and error.args
    if not is_argument_error or (not is_traced and hasattr(error, "operation")):
        return error
    named = type(error)(f"{operation}: {error.args[0]}")
    if not is_traced:
        named.operation = operation  # type: ignore[attr-defined]
    return named
