"""Docstrings have what a reader of ``help`` needs, and their sources say it once."""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _support.public import public_functions
from _support.run_python import run_python

import roipool

# More functions than these say the same only by mistake: `roipool._docstrings` says it for all.
REPEATED = 8
POINTER = re.compile(r"As in (:func:`\w+`|`forward`)\.")


def named(name: str) -> Callable[..., Any]:
    """Return the public function of this name, in roipool."""
    return functools.reduce(getattr, name.split("."), roipool)  # type: ignore[return-value]


# Layers describe their options, and functions their arguments.
FUNCTIONS = sorted(name for name in public_functions() if name.count(".") < 3)


def sections(function: Callable[..., Any]) -> dict[str, str]:
    """Return the sections of a numpydoc docstring, by title."""
    parts = re.split(r"^(\w[\w ]*)\n-+\n", inspect.getdoc(function) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_describes_every_parameter_and_the_result(name: str) -> None:
    function = named(name)
    found = sections(function)
    signature = inspect.signature(function)
    if signature.return_annotation not in (None, "None"):
        assert found["Returns"].strip()
    if signature.parameters:
        described = re.findall(
            r"^(\w+(?:, \w+)*)(?: : .+)?\n(?= +\S)", found["Parameters"], re.MULTILINE
        )
        names = [one for title in described for one in title.split(", ")]
        assert sorted(names) == sorted(signature.parameters)
        assert not POINTER.search(found["Parameters"])


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "." not in name])
def test_an_operation_has_examples(name: str) -> None:
    assert ">>> " in sections(named(name))["Examples"]


def sentences(docstring: str) -> set[str]:
    """Return the sentences of a docstring without its examples."""
    prose = re.sub(r"^Examples\n-+\n.*", "", docstring, flags=re.MULTILINE | re.DOTALL)
    described = re.split(r"\n\s*\n|\n(?=\S)|(?<=\S)\n(?=    )", prose)
    joined = (" ".join(each.split()) for each in described)
    return {one for each in joined for one in re.split(r"(?<=\.)\s+", each) if one.endswith(".")}


def test_no_sentence_stands_in_many_docstrings() -> None:
    """Of functions that are completed: those of operations and of frameworks."""
    counts: collections.Counter[str] = collections.Counter()
    package = Path(roipool.__file__).parent
    for folder in ("ops", "compat", "_masks"):
        for path in (package / folder).glob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef):
                    counts.update(sentences(ast.get_docstring(node) or ""))
    many = {one for one, count in counts.items() if count > REPEATED}
    assert not [one for one in many if not POINTER.fullmatch(one)]


def test_without_docstrings_nothing_is_completed() -> None:
    code = "import roipool; from roipool.compat import mmcv; print(roipool.roi_pool.__doc__)"
    assert run_python(code, PYTHONOPTIMIZE="2").stdout == "None\n"
