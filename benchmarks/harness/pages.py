"""Pages of figures that a command writes, and that CI compares with what it would write."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

__all__ = ["write_or_compare"]


def write_or_compare(file: Path, page: str, check: bool) -> int:
    """Write a page; or print how it differs from the file, and return 1 if it does."""
    if not check:
        file.write_text(page)
        return 0
    lines = [text.splitlines(keepends=True) for text in (file.read_text(), page)]
    sys.stdout.writelines(difflib.unified_diff(*lines, str(file), "now", n=0))
    if lines[0] == lines[1]:
        print(f"as {file.name} says")
    return int(lines[0] != lines[1])
