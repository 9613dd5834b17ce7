"""Compares the stubs of front ends, written by `scripts/stubs.py`, with the imported modules."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from types import ModuleType

from _support.sources import SOURCES

__all__ = ["check_stub", "stubs"]

_SPEC = importlib.util.spec_from_file_location("stubs", SOURCES / "scripts" / "stubs.py")
assert _SPEC is not None
assert _SPEC.loader is not None
stubs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(stubs)


def check_stub(front_end: ModuleType) -> None:
    """Check that a front end's stub has the module's exports, and its functions' arguments."""
    tree = ast.parse(stubs.stub(front_end.__name__.rpartition(".")[2]))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    exported = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert {node.name for node in functions} | exported == set(front_end.__all__)
    for node in functions:
        given = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
        parameters = inspect.signature(getattr(front_end, node.name)).parameters
        assert given == list(parameters), node.name
