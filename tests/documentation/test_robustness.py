"""docs/robustness.md: every row of faults is reproducible, and all process state is listed.

State is what outlives a call: names that are bound anew or changed in place after the import,
caches of functions, and variables of C++ that live as long as the process or a thread.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from _support.sources import SOURCES, nox_sessions

PAGE = (SOURCES / "docs" / "robustness.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table under a heading."""
    text = PAGE.partition(heading)[2]
    rows = re.search(r"^\|(?: ?-+ ?\|)+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert rows
    return [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in rows[1].splitlines()
    ]


FAULTS = table("# Faults and hostile input")


# ---- Faults


def commands() -> Iterator[str]:
    for row in FAULTS:
        assert len(row) == 4, row
        yield from re.findall(r"`([^`]+)`", row[-1])


def test_every_row_has_a_command() -> None:
    assert all("`" in row[-1] for row in FAULTS)
    assert len(FAULTS) > 30


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_commands_exist(command: str) -> None:
    """Each command names a file or module of the tree and its tests, or a nox session."""
    words = shlex.split(command)
    modules = [word.replace(".", "/") for word in words if word.startswith("roipool.")]
    files = [SOURCES / word for word in words if word.startswith(("tests/", "scripts/"))]
    files += [SOURCES / module for module in modules]
    for file in files:
        assert file.exists(), command
    if "nox" in words:
        session = words[words.index("-s") + 1]
        assert re.split(r"[-(]", session)[0] in nox_sessions()
    elif "-k" in words:
        text = files[0].read_text(encoding="utf-8")
        for name in words[words.index("-k") + 1].split(" or "):
            assert re.search(rf"def test_\w*{name}", text), command
    else:
        assert files, command


# ---- The process's state

ROWS = [row[1] for row in table("## Threads, forks and interpreters")]
STATE = {name for where in ROWS for name in re.findall(r"`(\w+)`", where)}
PYTHON = [
    file
    for file in sorted((SOURCES / "roipool").rglob("*.py"))
    if not {"cli", "tools", "verification"} & set(file.parts)
]
CHANGES = {"append", "add", "insert", "pop", "setdefault", "update", "clear", "extend", "remove"}
BOUND_ANEW = re.compile(r"^ +global (.+)$", re.MULTILINE)
VARIABLE = re.compile(
    r"^ *(?:static|inline|thread_local) (?!const)[^(=]*?\b(\w+)(?:\{\w*\}| = ).*;",
    re.MULTILINE,
)


def own_names(tree: ast.Module) -> set[str]:
    """Return the variables of a module."""
    targets: list[ast.expr] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign):
            targets.append(node.target)
    return {target.id for target in targets if isinstance(target, ast.Name)}


def changed_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or call rebinds or modifies in place."""
    match node:
        case ast.Global(names=names):
            yield from names
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            if method in CHANGES:
                yield name
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            yield from map(changed_part, targets)
        case ast.AugAssign(target=target):
            yield changed_part(target)


def changed_part(target: ast.expr) -> str:
    """Return the name of the object modified by an assignment to an item or attribute."""
    match target:
        case ast.Subscript(value=ast.Name(id=name)) | ast.Attribute(value=ast.Name(id=name)):
            return name
    return ""


def state_of(file: Path) -> set[str]:
    """Return the variables of a module that its functions modify, and the caches of functions."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    changed = {name for one in functions for node in ast.walk(one) for name in changed_by(node)}
    caches = {
        "lru_cache" if "lru" in text or text == "cached" else "cache"
        for one in functions
        for text in map(ast.unparse, one.decorator_list)
        if "cache" in text
    }
    return changed & own_names(tree) | caches


def test_no_state_of_python_is_missing() -> None:
    found = {name: file for file in PYTHON for name in state_of(file)}
    assert len(found) >= 9
    assert {name: file for name, file in found.items() if name not in STATE} == {}


def test_no_state_of_c_is_missing() -> None:
    kernels = SOURCES / "roipool" / "kernels"
    texts = [file.read_text() for file in [*kernels.glob("*.h"), *kernels.glob("cpu/**/*.*")]]
    found = {name for text in texts for name in VARIABLE.findall(text)}
    engine = (SOURCES / "roipool" / "_cpu.pyx").read_text()
    found |= {name for names in BOUND_ANEW.findall(engine) for name in names.split(", ")}
    assert len(found) >= 10
    assert found - STATE == set()


@pytest.mark.parametrize("where", [where for where in ROWS if "`" in where])
def test_state_is_where_the_page_says(where: str) -> None:
    """Each name in a row occurs in a file or folder that the row names."""
    paths = [SOURCES / "roipool" / path for path in re.findall(r"`([\w/]+(?:\.\w+|/))`", where)]
    assert paths
    texts = [
        "".join(file.read_text() for file in ([path] if path.is_file() else path.rglob("*.py")))
        for path in paths
    ]
    for name in re.findall(r"`(\w+)`", where):
        assert any(re.search(rf"\b{name}\b", text) for text in texts), name
