"""The names of public functions and methods."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import roipool


def public_functions() -> set[str]:
    """Return the functions of roipool and roipool.compat, without the oracle."""
    systems = [module.name for module in pkgutil.iter_modules(roipool.compat.__path__)]
    public = {name: inspect.unwrap(getattr(roipool, name)) for name in roipool.__all__}
    found = {name for name, value in public.items() if inspect.isfunction(value)}
    for system in systems:
        if not system.startswith("_"):
            found.update(f"compat.{system}.{name}" for name in _of(getattr(roipool.compat, system)))
    return found


def _of(module: Any) -> Iterator[str]:
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        if name.startswith("_") or name not in getattr(module, "__all__", [name] if is_own else []):
            continue
        if inspect.isclass(value):
            yield from (
                f"{name}.{method}" for method in ("forward", "backward") if hasattr(value, method)
            )
        elif inspect.isfunction(inspect.unwrap(value)):
            yield name
