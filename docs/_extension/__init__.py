"""What the site has that its pages do not hold: pictures, tables and lists made from the package.

A page asks for one by a comment, ``<!-- make: NAME ARGUMENTS -->``, which the text that the
function of that name in `making` returns replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import roipool
from _extension import accessibility, links, making

REQUEST = re.compile(r"^<!-- make: (?P<name>[a-z-]+)(?P<arguments>.*?) -->$", re.MULTILINE)


def setup(app: Any) -> dict[str, bool]:
    """Connect the functions below; Sphinx calls this."""
    app.connect("builder-inited", draw)
    app.connect("build-finished", add_playground)
    app.connect("build-finished", add_markdown)
    app.connect("build-finished", accessibility.mend_pages)
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def draw(app: Any) -> None:
    """Draw the pictures, and write the pages of examples."""
    making.write_pictures(Path(app.srcdir) / "_generated")
    making.write_examples(Path(app.srcdir) / "_generated" / "examples")


def add_playground(app: Any, error: Exception | None) -> None:
    """Add what the page "Playground" shows; only HTML has a place for it."""
    if error is None and app.builder.format == "html":
        making.write_playground(Path(app.outdir) / "_static")


def add_markdown(app: Any, error: Exception | None) -> None:
    """Add each page as Markdown beside its HTML, and `llms.txt`, which lists them."""
    if error is not None or app.builder.format != "html":
        return
    lines = [f"# {app.config.project}", "", f"> {roipool.__doc__.partition(chr(10))[0]}", ""]
    for name in in_order(app.env.toctree_includes, "index"):
        source = Path(app.env.doc2path(name))
        target = Path(app.outdir, f"{name}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(make(source.read_text(), source.parent, Path(app.srcdir)))
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.md)")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n")


def in_order(trees: dict[str, list[str]], page: str) -> Iterator[str]:
    """Yield a page and those below it, as the sidebar lists them."""
    yield page
    for each in trees.get(page, []):
        yield from in_order(trees, each)


def read_page(app: Any, page: str, content: list[str]) -> None:
    """Make what a page asks for, and let its links lead to pages where there are any."""
    folder = Path(app.srcdir, page).parent
    content[0] = links.led_to_pages(make(content[0], folder, Path(app.srcdir)), folder, folder)


def read_included(app: Any, path: Path, page: str, content: list[str]) -> None:
    """Do the same for the links of another file that a page includes."""
    folder = Path(app.srcdir, app.env.docname).parent  # MyST gives `page` without its folder
    source = Path(app.srcdir, path).resolve().parent
    content[0] = links.led_to_pages(content[0], source, folder)


def make(text: str, folder: Path, sources: Path) -> str:
    """Replace each request by what it asks for, for a page in `folder`."""

    def made(request: re.Match[str]) -> str:
        function = making.MAKERS[request["name"]]
        to_sources = "../" * len(folder.relative_to(sources).parts)
        arguments = [argument.strip() for argument in request["arguments"].split(",")]
        return function(*filter(None, arguments)).replace("_generated/", f"{to_sources}_generated/")

    return REQUEST.sub(made, text)
