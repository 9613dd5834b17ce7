"""Error messages: values in them, of any size, and the name of the operation before them."""

from __future__ import annotations

from typing import Any

_MAX_LENGTH = 200


def shown(value: Any) -> str:
    """Return how a message shows a value: its ``repr``, shortened."""
    try:
        return shortened(repr(value))
    except Exception:  # noqa: BLE001 - a `__repr__` may raise anything, an int may be too long
        return f"a value of type {type(value).__name__}"


def shortened(text: str) -> str:
    """Return a text, or its beginning if it is long."""
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


# Arrays in files and of other forms, by the package and the name of their types: the way to pool
# from them, given the argument's name.
_WAYS = {
    ("zarr", "Array"): "read a part, such as {0}[:8], or use dask.array.from_zarr({0})",
    ("h5py", "Dataset"): "read a part, such as {0}[:8], or use dask.array.from_array({0})",
    ("xarray", "DataArray"): "use the array in it, {0}.data",
}


def kind_of(name: str, value: Any) -> str:
    """Return the type of an argument that is no array, with the way to pool from one like it."""
    kind = type(value)
    way = _WAYS.get((kind.__module__.partition(".")[0], kind.__name__))
    return f"{kind.__name__}; {way.format(name)}" if way else kind.__name__


def with_name(error: Exception, operation: str) -> Exception:
    """Return an error with the name of an operation before its text, unless it has one already.

    Subclasses, which other libraries raise with more in them than a text, stay as they are.
    That of a private function, which does a layer's work, is shown without its underscore.
    """
    operation = operation.lstrip("_")
    is_argument_error = type(error) in (TypeError, ValueError) and error.args
    if not is_argument_error or hasattr(error, "operation"):
        return error
    named = type(error)(f"{operation}: {error.args[0]}")
    named.operation = operation  # type: ignore[attr-defined]
    return named
