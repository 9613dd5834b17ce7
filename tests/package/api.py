"""Writes `api.txt`, the signatures of the public API, or compares it with the current API.

    python tests/package/api.py --write

A changed line is a change for users: it needs a line in the changelog, and docs/releasing.md says
what is allowed when.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import roipool
import roipool.compat
import roipool.testing

FILE = Path(__file__).with_name("api.txt")


def public_modules() -> list[ModuleType]:
    """Return the public modules; those of front ends need their library."""
    names = [module.name for module in pkgutil.iter_modules(roipool.compat.__path__)]
    compat = [f"roipool.compat.{name}" for name in names if not name.startswith("_")]
    return [roipool, *map(importlib.import_module, sorted(compat)), roipool.testing]


def names_of(module: ModuleType) -> list[str]:
    """Return a module's exports: its `__all__`, or else its public definitions."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def lines_of(name: str, value: object) -> Iterator[str]:
    """Yield a line for a function, and for a class one per public method."""
    if inspect.isclass(value):
        yield f"class {name}{inspect.signature(value)}"
        for method, member in sorted(vars(value).items()):
            is_public = not method.startswith("_") or method == "__call__"
            if is_public and inspect.isfunction(member):
                yield f"    {method}{inspect.signature(member)}"
    elif callable(value):
        yield f"{name}{inspect.signature(value)}"
    else:
        yield name


def text() -> str:
    """Return the signatures, one per line."""
    lines: list[str] = []
    for module in public_modules():
        lines.append(f"# {module.__name__}")
        for name in names_of(module):
            lines.extend(lines_of(name, getattr(module, name)))
        lines.append("")
    return "\n".join(lines)


def difference() -> str:
    """Return the differences to the committed signatures."""
    before, after = FILE.read_text().splitlines(), text().splitlines()
    return "\n".join(difflib.unified_diff(before, after, "committed", "now", n=0, lineterm=""))


def main() -> int:
    """Write the file, or print the changes and fail."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="accept what is there now")
    if parser.parse_args().write:
        FILE.write_text(text())
        return 0
    changed = difference()
    if changed:
        print(changed)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
