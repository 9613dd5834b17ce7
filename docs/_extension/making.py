"""What pages ask for by ``<!-- make: ... -->``, as Markdown; `MAKERS` has the names."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

import roipool
from _extension import argument_forms, calls, gallery, sampling, sources, systems_table, tutorial
from roipool import compat
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op, Variant
from roipool.tools.compare import page

EXAMPLES = Path(__file__).parents[2] / "examples"
OPERATIONS = ("roipool.ops.", "roipool._masks.")
PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
PROBE_BOX = (1.0, 1.0, 3.0, 3.0)


def write_pictures(folder: Path) -> None:
    """Write the picture of every call."""
    folder.mkdir(exist_ok=True)
    for name in calls.CALLS:
        path, drawn = folder / f"{_slug(name)}.svg", sampling.picture(name)
        if not path.exists() or path.read_text() != drawn:
            path.write_text(drawn)
    gallery.write(folder)


def write_playground(folder: Path) -> None:
    """Write the page that the page "Playground" shows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "playground.html").write_text(page.playground(), encoding="utf-8")


def _slug(name: str) -> str:
    return name.replace("[", "-").replace("]", "").replace(" ", "-")


def pictures(*names: str) -> str:
    """Return pictures side by side, each above its call; by default of every operation."""
    blocks = [
        f"::::{{container}} picture\n"
        f"![Cells and samples of {name}](_generated/{_slug(name)}.svg)\n\n"
        f"`{calls.CALLS[name]}`\n::::\n"
        for name in names or [f"roipool.{forward}" for forward in OPS]
    ]
    return "\n".join([":::::{container} pictures", *blocks, ":::::"])


def probe(*names: str) -> str:
    """Return a table of what systems answer to the probe, those that answer alike together."""
    alike: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for name in names or calls.CALLS:
        if not calls.is_turned(name):  # its box is another
            values = calls.answer(name, PROBE, PROBE_BOX).ravel()
            alike[tuple(float(f"{value:.6g}") for value in values)].append(name)
    rows = [
        f"| {', '.join(f'`{name}`' for name in same)} | {', '.join(f'{v:g}' for v in values)} |"
        for values, same in alike.items()
    ]
    return "\n".join(["| systems | four bins |", "|---|---|", *rows])


def systems() -> str:
    """Return the list of the pages of `roipool.compat`, with the first sentence of each module."""
    lines = []
    for module in compat.__all__:
        first = (inspect.getdoc(getattr(compat, module)) or "").partition("\n\n")[0]
        lines.append(f"- [{module}]({module}.md): {_markdown(' '.join(first.split()))}")
    return "\n".join(lines)


def _markdown(text: str) -> str:
    """Return a docstring's line with the code marks of Markdown."""
    return text.replace("``", "`")


def module(name: str) -> str:
    """Return the reference of a module."""
    return f"```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```"


def source(name: str, *names: str) -> str:
    """Return the reference of a module that cannot be imported without an optional library."""
    return sources.reference(name, names)


EVERY = OPS | PYRAMID_OPS | VOLUME_OPS


def operation(name: str) -> str:
    """Return the reference of an operation of the core, with its gradients."""
    return _functions(*_functions_of(EVERY[name]))


def function(name: str) -> str:
    """Return the reference of a function of the core that is no operation of engines."""
    return _functions(name)


def support(name: str) -> str:
    """Return what each array library can do with an operation, from the tables of frameworks.md."""
    text = (Path(__file__).parents[1] / "frameworks.md").read_text()
    lines = []
    for library, table in re.findall(r"<!-- (\w+): begin -->\n(.*?)<!--", text, re.DOTALL):
        header, _, *rows = table.splitlines()
        for row in rows:
            variant, *cells = (cell.strip() for cell in row.strip("|").split("|"))
            if variant.startswith(f"`{name}`,"):
                columns = [column.strip() for column in header.strip("|").split("|")[1:]]
                by_word: dict[str, list[str]] = defaultdict(list)
                for column, cell in zip(columns, cells, strict=True):
                    by_word[cell].append(column)
                words = "; ".join(f"*{word}*: {', '.join(by_word[word])}" for word in by_word)
                lines.append(f"| {LIBRARIES[library]}, {variant.partition(', ')[2]} | {words} |")
    head = ["| arrays | |", "|---|---|"]
    core = "| NumPy, CuPy | *yes*: half types, functions of gradients |"
    note = "The words are explained on [the page of all libraries](../frameworks.md)."
    return "\n".join([*head, core, *lines, "", note])


# The tables of frameworks.md by their markers.
LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "other": "any other", "dask": "Dask"}


def _functions_of(op: Op) -> list[str]:
    """Return the names of an operation's functions; that of levels is any pyramid's."""
    levels = "assign_levels" if op.forward in PYRAMID_OPS else None
    return [*filter(None, (levels, *op.functions.values()))]


def gradients() -> str:
    """Return the table of the gradients of every operation."""
    rows = [
        f"| {_variant_name(op, key)} | {_by_features(op, variant)} | {_by_boxes(op, variant)} |"
        for op in EVERY.values()
        for key, variant in op.variants.items()
    ]
    return "\n".join(["| operation | features | boxes |", "|---|---|---|", *rows])


def _variant_name(op: Op, key: str) -> str:
    words = {"avg": "average", "max": "maximum"}
    return f"`{op.forward}`" + (f", {words.get(key, key)}" if len(op.variants) > 1 else "")


def _by_features(op: Op, variant: Variant) -> str:
    of_maps = ": of all maps" if op.forward in PYRAMID_OPS else ""
    return f"`{op.backward}`{of_maps}" + (", with the argmax" if variant.has_argmax else "")


def _by_boxes(op: Op, variant: Variant) -> str:
    if variant.by_boxes:
        if op.is_deformable:
            names = op.backward_boxes, op.backward_offsets, op.backward_mask
            return "`{}`; of offsets `{}`, of a mask `{}`".format(*names)
        return f"`{op.backward_boxes}`" + (": centre, size and angle" if op.is_rotated else "")
    if variant.by_offsets:
        return f"zero: boxes are rounded; of offsets `{op.backward_offsets}`"
    if variant.bin_value == "sample":
        return "not offered"
    return "zero: whole cells do not move with a box"


def settings() -> str:
    """Return the reference of all public functions that are no operations."""
    functions = {name: getattr(roipool, name) for name in roipool.__all__}
    rest = [
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and not function.__module__.startswith(OPERATIONS)
    ]
    return _functions(*rest)


# Before the others, in the order in which a reader may want them.
FIRST_EXAMPLES = (
    "picture_crops",
    "photo_batch",
    "where_is_the_box",
    "torch_detector",
    "torch_training",
)
# Those that need no other library: the page has what they print.
SHOWN_TO_PRINT = (
    "faster_rcnn_head",
    "lung_nodules",
    "picture_crops",
    "tensorflow_or_torchvision",
    "video_boxes",
    "video_tubes",
    "where_is_the_box",
)


PICTURED = ("photo_batch", "lung_nodules", "video_tubes")  # by the gallery


def write_examples(folder: Path) -> None:
    """Write a page for every program of `examples/`, with what it prints if it needs NumPy only."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in _programs().items():
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        first, _, rest = text.partition("\n")
        parts = [f"# {name}", _markdown(first), _docstring(rest)]
        if name in PICTURED:
            picture = f"../gallery-{name.replace('_', '-')}.png"
            parts.append(f"![Results of {name}.py]({picture})")
        if name in SHOWN_TO_PRINT:
            parts.append(f"It prints\n\n```text\n{_printed(file)}```")
        parts.append(f"{{download}}`{name}.py <../../../examples/{name}.py>`:")
        parts.append(f"```{{literalinclude}} ../../../examples/{name}.py\n:language: python\n```")
        (folder / f"{name}.md").write_text("\n\n".join(filter(None, parts)) + "\n")


def _programs() -> dict[str, Path]:
    files = {file.stem: file for file in sorted(EXAMPLES.glob("*.py"))}
    return {name: files[name] for name in dict.fromkeys([*FIRST_EXAMPLES, *files])}


def _docstring(text: str) -> str:
    """Return paragraphs of a docstring as Markdown; those that are indented are commands."""
    return re.sub(r"(?m)^    (.*)$", r"```text\n\1\n```", _markdown(text)).strip()


def examples() -> str:
    """Return the list of the programs of `examples/`, and the tree of their pages."""
    pages = [f"_generated/examples/{name}" for name in _programs()]
    lines = []
    for place, file in zip(pages, _programs().values(), strict=True):
        title = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
        lines.append(f"- [{file.name}]({place}.md): {_markdown(title)}")
    tree = "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])
    return "\n".join([*lines, "", tree])


def _printed(program: Path) -> str:
    command = [sys.executable, str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _functions(*names: str) -> str:
    lines = [f".. autofunction:: roipool.{name}" for name in names]
    return "\n".join(["```{eval-rst}", *lines, "```"])


MAKERS: dict[str, Callable[..., str]] = {
    "pictures": pictures,
    "probe": probe,
    "systems": systems,
    "table-of-systems": systems_table.table,
    "table-of-gradients": systems_table.gradients,
    "module": module,
    "source": source,
    "operation": operation,
    "function": function,
    "support": support,
    "gradients": gradients,
    "settings": settings,
    "examples": examples,
    "gallery": gallery.markdown,
    "shown": tutorial.shown,
    "argument-forms": argument_forms.table,
    "box-gradients": argument_forms.box_gradients,
    "kinds": argument_forms.kinds,
}
