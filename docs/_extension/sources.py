"""Reference of modules that import optional libraries, from their sources' text alone."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Types in docstrings that are links: their names elsewhere, by what docstrings say.
LINKS = {
    "Tensor": "torch.Tensor",
    "dask.array.Array": ":class:`dask.array.Array`",
    "jax.Array": ":class:`jax.Array`",
    "ndarray": "numpy.ndarray",
}
# numpydoc would link these to Python's or NumPy's documentation.
PLAIN = (
    "False None True array array_like bool callable contextmanager dict float generator int "
    "iterable list namedtuple numpy scalar sequence str string tuple"
).split()
ALIASES = {**{word: word for word in PLAIN}, **LINKS}

Documented = ast.FunctionDef | ast.ClassDef


def reference(module: str, names: tuple[str, ...]) -> str:
    """Return the reference of some names of a module, or of its docstring and all its functions."""
    tree = _parsed(module)
    by_name = _definitions(module, tree)
    missing = [name for name in names if name not in by_name]
    if missing:
        raise ValueError(f"{module} has no function or class {', '.join(missing)}")
    own = [node.name for node in tree.body if isinstance(node, Documented)]
    chosen = names or tuple(name for name in own if not name.startswith("_"))
    parts = [_directive(by_name[name]) for name in chosen]
    if not names:
        parts.insert(0, _rest(ast.get_docstring(tree) or ""))
    text = "\n\n".join(parts)
    return f"```{{eval-rst}}\n.. py:currentmodule:: {public_module(module)}\n\n{text}\n```"


def _parsed(module: str) -> ast.Module:
    path = ROOT / Path(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return ast.parse(file.read_text())


def _definitions(module: str, tree: ast.Module) -> dict[str, Documented]:
    """Return functions and classes by name, also those that come from private modules inside."""
    found: dict[str, Documented] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{module}._"):
            inner = _definitions(str(node.module), _parsed(str(node.module)))
            names = (each.name for each in node.names)
            found |= {name: inner[name] for name in names if name in inner}
        elif isinstance(node, Documented):
            found[node.name] = node
    return found


def public_module(module: str) -> str:
    """Return the module that users import a name from: without private parts."""
    return ".".join(part for part in module.split(".") if not part.startswith("_"))


def _directive(node: Documented) -> str:
    kind = "class" if isinstance(node, ast.ClassDef) else "function"
    lines = [f".. py:{kind}:: {node.name}({_signature(node)})", ""]
    return "\n".join([*lines, textwrap.indent(_rest(ast.get_docstring(node) or ""), "   ")])


def _signature(node: Documented) -> str:
    """Return the parameters of a function, or of a class' constructor, without types."""
    function: ast.AST | None = node
    if isinstance(node, ast.ClassDef):
        methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
        function = next((method for method in methods if method.name == "__init__"), None)
        if function is None:
            return ", ".join(_field(each) for each in node.body if isinstance(each, ast.AnnAssign))
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    if isinstance(node, ast.ClassDef):
        arguments.args = arguments.args[1:]  # self
    return ast.unparse(arguments)


def _field(assigned: ast.AnnAssign) -> str:
    """Return the parameter that a field of a data class is."""
    default = assigned.value
    if isinstance(default, ast.Call):  # field(default=..., ...)
        default = next(each.value for each in default.keywords if each.arg == "default")
    name = ast.unparse(assigned.target)
    return name if default is None else f"{name}={ast.unparse(default)}"


def _rest(docstring: str) -> str:
    """Return a docstring of numpydoc as reStructuredText."""
    from numpydoc.docscrape_sphinx import SphinxDocString  # tests of other modules have none

    linked = {"xref_param_type": True, "xref_aliases": ALIASES, "xref_ignore": "all"}
    return str(SphinxDocString(inspect.cleandoc(docstring), config=linked))
