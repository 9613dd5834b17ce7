"""Calls of public functions within programs that Dynamo traces.

Importing this module imports Dynamo, so that only such programs do.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _traced(module: str, name: str, args: Any, kwargs: Any) -> Any:
    """Compute a function within a program that Dynamo traces: its checks are no part of that.

    Dynamo would hide an error behind one of its own: for a mistake, the result is complex.
    """
    public = getattr(importlib.import_module(module), name)
    args, kwargs = _pytree.tree_map(_plain, (args, kwargs))
    try:
        return public(*args, **kwargs)
    except (TypeError, ValueError, NotImplementedError) as error:
        _mistake.text = str(error)
        return torch.empty(0, dtype=torch.complex64)


class _Mistake(threading.local):
    """The last mistake in a program that this thread traces."""

    text = ""


_mistake = _Mistake()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _last_mistake() -> str:
    return _mistake.text


def call_in_trace(module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a public function by its name; raise a mistake, which Dynamo then shows."""
    result = _traced(module, name, args, kwargs)
    if isinstance(result, Tensor) and result.is_complex():
        raise ValueError(_last_mistake())
    return result


def _plain(value: Any) -> Any:
    """Return an argument; a symbol of a float as the number that the program is compiled for."""
    return float(value) if isinstance(value, torch.SymFloat) else value
