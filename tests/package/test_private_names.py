"""No package of roipool uses another package's private names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import roipool

TOP = "roipool"
ROOT = Path(roipool.__file__).parent
# Torch's layers read names and defaults of arguments as `compat` does, and detectron2's operators
# for tensors are those of its layer.
EXCEPTIONS = ("roipool.compat._conventions", "roipool.compat._detectron2_rotated")


def package_of(module: str) -> str:
    """Return the package that a module belongs to, such as "roipool.tools.compare".

    Its modules may know one another's private parts. Private modules at the top, such as
    `roipool._arguments`, are there for all packages.
    """
    parts = module.split(".")
    depth = 3 if parts[1:2] == ["tools"] else 2
    return ".".join(parts[: min(depth, len(parts) - 1)]) if len(parts) > 1 else TOP


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def module_of(path: Path) -> str:
    parts = [TOP, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts if parts[-1] != "__init__" else [*parts[:-1], "__init__"])


def is_package(module: str) -> bool:
    return ROOT.joinpath(*module.split(".")[1:]).is_dir()


def is_module(module: str) -> bool:
    file = ROOT.joinpath(*module.split(".")[1:])
    return is_package(module) or any(
        file.with_suffix(suffix).exists() for suffix in (".py", ".pyx", ".pyi")
    )


def private_uses(module: str, text: str) -> Iterator[str]:
    """Yield the private names of other packages that a module's source uses."""
    tree = ast.parse(text)
    modules: dict[str, str] = {}  # by the name that they have here
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name: one.name for one in node.names}
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.level:
            continue
        for one in node.names:
            whole = f"{node.module}.{one.name}"
            if is_module(whole):
                modules[one.asname or one.name] = whole
            if node.module.startswith(TOP) and not reaches(module, node.module, one.name):
                yield f"{module}: from {node.module} import {one.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = modules.get(node.value.id, "")
            if used.startswith(TOP) and not reaches(module, used, node.attr):
                yield f"{module}: {used}.{node.attr}"


def reaches(module: str, source: str, name: str) -> bool:
    """Return whether a module may use a name of another module."""
    own, home = package_of(module), source if is_package(source) else package_of(source)
    if own == home or (home != TOP and own.startswith(f"{home}.")):
        return True
    if source in EXCEPTIONS or f"{source}.{name}" in EXCEPTIONS:
        return True
    parts = source.split(".")[1:]
    inside = [*parts[1:], name] if parts and is_private(parts[0]) else [*parts, name]
    if source == TOP:
        return is_module(f"{TOP}.{name}") or not is_private(name)
    return not any(map(is_private, inside))


def test_no_private_names_of_other_packages() -> None:
    found = [
        use
        for path in sorted(ROOT.rglob("*.py"))
        for use in private_uses(module_of(path), path.read_text(encoding="utf-8"))
    ]
    assert found == []
