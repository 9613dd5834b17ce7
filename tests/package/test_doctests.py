"""Every example in every docstring of the installed package."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import roipool
from roipool._definitions import OPS

MODULES = [
    "roipool",
    *(
        module.name
        for module in pkgutil.walk_packages(roipool.__path__, "roipool.")
        if not module.name.endswith(("__main__", "._cuda.engine"))  # importing that needs a GPU
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("name", OPS)
def test_operations_have_examples(name: str) -> None:
    module = importlib.import_module(f"roipool.ops.{name}")
    assert doctest.testmod(module).attempted > 0
