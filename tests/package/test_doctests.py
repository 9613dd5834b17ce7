"""The examples in all docstrings of the installed package."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from importlib.util import find_spec
from types import ModuleType

import pytest

import roipool
from roipool._definitions import OPS, VOLUME_OPS, Op

# Importing these needs a GPU, or a package that is not installed.
NEEDY = ["__main__", "._cuda.engine", "._cuda.kept"]
OPTIONAL = ("cupy", "dask", "jax", "torch")
NEEDY += [f".{library}" for library in OPTIONAL if find_spec(library) is None]
NEEDY += ["front_ends._tensors"] if find_spec("torch") is None else []


def modules(package: ModuleType) -> list[str]:
    """Return the names of a package and of all modules in it that can be imported."""
    names = [package.__name__]
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(tuple(NEEDY)):
            inner = modules(importlib.import_module(module.name)) if module.ispkg else [module.name]
            names.extend(inner)
    return names


class Finder(doctest.DocTestFinder):
    """Also finds the examples of decorated functions."""

    def _from_module(self, module: ModuleType, object: object) -> bool:
        return super()._from_module(module, inspect.unwrap(object))  # type: ignore[misc, arg-type]


def run_examples(name: str) -> doctest.TestResults:
    runner = doctest.DocTestRunner()
    for example in Finder().find(importlib.import_module(name)):
        runner.run(example)
    return doctest.TestResults(runner.failures, runner.tries)


@pytest.mark.parametrize("name", modules(roipool))
def test_examples(name: str) -> None:
    assert run_examples(name).failed == 0


@pytest.mark.parametrize("op", (OPS | VOLUME_OPS).values(), ids=lambda op: op.forward)
def test_operations_have_examples(op: Op) -> None:
    assert run_examples(f"roipool.ops.{op.forward}").attempted >= 2 * len(op.functions)
