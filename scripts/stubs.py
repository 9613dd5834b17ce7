"""Writes the stubs of the front ends, whose functions are generated at import.

    python scripts/stubs.py

`roipool/jax/__init__.pyi` and the stub of `roipool.dask` declare the functions
of the table `roipool._requests.public_functions`, with NumPy's signatures in the types of the
library, and the package's other exports. The libraries are not needed.
`tests/package/test_types.py` compares the committed files with the script's output.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import roipool
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op
from roipool._requests import public_functions

PACKAGE = Path(roipool.__file__).parent
# Types of NumPy arrays only: signatures with these have a more general overload.
NUMPY_ONLY = ("NDArray", "Bytes")


class FrontEnd(NamedTuple):
    """A library, and the types of its functions.

    Attributes
    ----------
    array : str
        The type of returned arrays.
    types : mapping of str to str
        The type of an argument, for each type in the signatures of NumPy's functions.
    modules : mapping of str to str
        The modules of the names in these types.
    forwards_only : bool
        Whether the library has no gradients and no `assign_levels`.
    more : tuple of str
        Source of further keyword arguments.
    """

    array: str
    types: Mapping[str, str]
    modules: Mapping[str, str]
    forwards_only: bool = False
    more: tuple[str, ...] = ()


FRONT_ENDS = {
    "jax": FrontEnd(
        "Array",
        {
            "ArrayT": "Array | NDArray[Any]",
            "AnyArray": "Array | NDArray[Any]",
            "Boxes": "Array | ArrayLike | Sequence[Array]",
            "Numbers": "Array | ArrayLike",
            "PooledDType": "DTypeLike",
        },
        {"Array": "jax", "ArrayLike": "numpy.typing", "NDArray": "numpy.typing"},
    ),
    "dask": FrontEnd(
        "Array",
        {
            "ArrayT": "Array",
            "AnyArray": "NDArray[Any]",
            "Boxes": "ArrayLike | Sequence[NDArray[Any]]",
            "Numbers": "ArrayLike",
            "PooledDType": "DTypeLike",
        },
        {"Array": "dask.array", "ArrayLike": "numpy.typing", "NDArray": "numpy.typing"},
        forwards_only=True,
        more=("keep_order: bool = True",),
    ),
}
# Modules of the other names in signatures.
MODULES = {
    "Sequence": "collections.abc",
    "Any": "typing",
    "Literal": "typing",
    "overload": "typing",
    "Layout": "roipool._layout",
    "VolumeLayout": "roipool._layout",
    "AngleUnit": "roipool._types",
    "DTypeLike": "numpy.typing",
    "Border": "roipool._types",
    "Method": "roipool._types",
    "Mode": "roipool._types",
}


def names(front_end: FrontEnd) -> list[str]:
    """Return the names of a front end's functions, in the order of the table."""
    if front_end.forwards_only:
        return [op.forward for op in (OPS | PYRAMID_OPS | VOLUME_OPS).values()]

    def nothing(op: Op) -> Any:
        return SimpleNamespace(**dict.fromkeys(op.functions))

    return list(public_functions(nothing, nothing, nothing, dict, "", ""))


def signatures(name: str) -> Iterator[inspect.Signature]:
    """Yield the annotated signatures of an operation, as for all libraries."""
    function: Callable[..., Any] = inspect.unwrap(getattr(roipool, name))
    defaults = inspect.signature(function).parameters
    for each in typing.get_overloads(function) or [function]:
        signature = inspect.signature(each)
        if any(kind in str(signature) for kind in NUMPY_ONLY):
            continue
        parameters = [
            one.replace(default=defaults[key].default if one.default is ... else one.default)
            for key, one in signature.parameters.items()
        ]
        yield signature.replace(parameters=parameters)


def declaration(name: str, front_end: FrontEnd) -> str:
    """Return the stub of a function."""
    all_signatures = list(signatures(name))
    head = "@overload\n" if len(all_signatures) > 1 else ""
    return "".join(head + one_declaration(name, each, front_end) for each in all_signatures)


def one_declaration(name: str, signature: inspect.Signature, front_end: FrontEnd) -> str:
    """Return the stub of one signature."""
    lines, is_by_name = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_by_name:
            lines.append("*")
            is_by_name = True
        kind = (
            "None" if parameter.name == "out" else of_library(parameter.annotation, front_end.types)
        )
        is_optional = parameter.default is not parameter.empty
        lines.append(
            f"{parameter.name}: {kind}" + (f" = {parameter.default!r}" if is_optional else "")
        )
    body = "".join(f"    {line},\n" for line in [*lines, *front_end.more]).replace("'", '"')
    result = of_library(signature.return_annotation, {"ArrayT": front_end.array})
    return f"def {name}(\n{body}) -> {result}: ...\n"


def of_library(annotation: str, types: Mapping[str, str]) -> str:
    """Return an annotation with the types of a library."""
    return re.sub(r"\w+", lambda word: types.get(word[0], word[0]), annotation)


def exports(package: str) -> dict[str, str]:
    """Return a package's other exports, and their modules."""
    tree = ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8"))
    (exported,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert isinstance(exported, ast.List)
    plain = [each.value for each in exported.elts if isinstance(each, ast.Constant)]
    return {
        alias.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in plain
    }


def imports(modules: Mapping[str, str]) -> str:
    """Return lines that import names from their modules, sorted as ruff sorts them."""
    groups: list[list[str]] = [[], [], []]  # standard library, third party, roipool
    for module in sorted(set(modules.values())):
        own = sorted(name for name, place in modules.items() if place == module)
        top = module.partition(".")[0]
        group = 0 if top in sys.stdlib_module_names else 2 if top == "roipool" else 1
        groups[group].append(f"from {module} import {', '.join(own)}\n")
    return "\n".join("".join(group) for group in groups)


def stub(package: str) -> str:
    """Return the stub file of a front end."""
    front_end = FRONT_ENDS[package]
    body = "".join(declaration(name, front_end) for name in names(front_end))
    used = set(re.findall(r"\w+", body))
    modules = {**MODULES, **front_end.modules}
    exported = {f"{name} as {name}": module for name, module in exports(package).items()}
    head = imports({**{name: modules[name] for name in modules.keys() & used}, **exported})
    title = f"# Written by scripts/stubs.py: what roipool.{package} has, for type checkers.\n"
    return f"{title}{head}\n{body}"


def stub_file(package: str) -> Path:
    """Return the path of a front end's stub file."""
    return PACKAGE / package / "__init__.pyi"


if __name__ == "__main__":
    for front_end in FRONT_ENDS:
        stub_file(front_end).write_text(stub(front_end), encoding="utf-8")
