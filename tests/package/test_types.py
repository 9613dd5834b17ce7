"""Types that users' checkers see: stubs are the generated ones, and agree with what is imported.

`tests/package/typed_user.py` is checked by the session `types` of noxfile.py.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from types import ModuleType

import pytest
from _support.sources import SOURCES

import roipool

SPEC = importlib.util.spec_from_file_location("stubs", SOURCES / "scripts" / "stubs.py")
assert SPEC is not None
assert SPEC.loader is not None
stubs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(stubs)


def front_end_or_skip(package: str) -> ModuleType:
    pytest.importorskip(package)
    return importlib.import_module(f"roipool.{package}")


@pytest.mark.parametrize("package", stubs.FRONT_ENDS)
def test_stubs_are_the_generated_ones(package: str) -> None:
    assert stubs.stub_file(package).read_text() == stubs.stub(package), "run scripts/stubs.py"


@pytest.mark.parametrize("package", stubs.FRONT_ENDS)
def test_stubs_have_the_names_that_are_exported(package: str) -> None:
    front_end = front_end_or_skip(package)
    tree = ast.parse(stubs.stub(package))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    exported = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert functions | exported == set(front_end.__all__)


@pytest.mark.parametrize("package", stubs.FRONT_ENDS)
def test_stubs_have_the_arguments_of_the_functions(package: str) -> None:
    front_end = front_end_or_skip(package)
    for node in ast.parse(stubs.stub(package)).body:
        if isinstance(node, ast.FunctionDef):
            given = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
            parameters = inspect.signature(getattr(front_end, node.name)).parameters
            assert given == list(parameters), node.name


def test_private_helpers_are_not_listed() -> None:
    loaded = {"dask", "jax", "testing", "torch"} & vars(roipool).keys()
    assert set(dir(roipool)) == {*roipool.__all__, *loaded}
    assert not {"annotations", "libraries", "load_front_ends"} & set(dir(roipool))


def test_the_table_of_what_is_tested_with_a_wheel() -> None:
    """Each of its functions and tests is there, and run where the table says."""
    text = (SOURCES / "docs" / "frameworks.md").read_text()
    table = text.partition("<!-- with an installed wheel, from here -->")[2].partition(
        "<!-- with an installed wheel, to here -->"
    )[0]
    _, _, *rows = table.strip().splitlines()
    user = (SOURCES / "tests" / "package" / "typed_user.py").read_text()
    steps = (SOURCES / ".ci" / "run").read_text()
    for row in rows:
        _, types, wheel = (re.findall("`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        assert all(f"def {name}(" in user for name in types)
        tests = [name for name in wheel if name.startswith("tests/")]
        assert tests
        for name in tests:
            assert list(SOURCES.glob(name)), name
            library = re.findall(r"test_([a-z]+)", name)
            assert all(each in steps for each in library), name
