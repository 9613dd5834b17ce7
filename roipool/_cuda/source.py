"""CUDA source as one text: the kernel files with the headers they include.

CuPy keys its cache of compiled kernels by the text alone, so headers must be in it rather than on
an include path. What a text is specialised for stands at its top as ``#define``.
"""

from __future__ import annotations

import importlib.resources
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources.abc import Traversable

INCLUDE = re.compile(r'\s*#\s*include\s*"(.+)"')

# One set of options for all kernels. Decisions (floor, ceil, outside) must not depend on the
# compiler, so nothing is contracted that the kernels do not contract themselves.
OPTIONS = ("-std=c++17", "-fmad=false")


def kernel_folder() -> Traversable:
    """Return the folder of the kernel sources."""
    return importlib.resources.files("roipool") / "kernels"


@cache
def flatten(file: str, folder: Traversable | None = None) -> str:
    """Return a source file and, where it includes them, its headers; each header once.

    Line directives let compilers name the original files and lines in their messages.
    """
    return "\n".join(_flat_lines(file, folder or kernel_folder(), set())) + "\n"


def _flat_lines(file: str, folder: Traversable, seen: set[str]) -> Iterator[str]:
    seen.add(file)
    yield f'#line 1 "{file}"'
    text = folder.joinpath(*file.split("/")).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        included = INCLUDE.match(line)
        if included:
            other = posixpath.normpath(posixpath.join(posixpath.dirname(file), included[1]))
            if other not in seen:
                yield from _flat_lines(other, folder, seen)
            yield f'#line {number + 1} "{file}"'
        else:
            yield "" if line.strip() == "#pragma once" else line


def kernel_source(file: str, **defines: str | int) -> str:
    """Return a flattened file with ``ROIPOOL_<NAME>`` defined for each keyword, in capitals."""
    top = [f"#define ROIPOOL_{name.upper()} {value}" for name, value in defines.items()]
    return "\n".join(top) + "\n" + flatten(file)
