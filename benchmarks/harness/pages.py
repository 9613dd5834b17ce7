"""Generated pages, which CI compares with their current content."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

__all__ = ["write_or_compare"]


def write_or_compare(file: Path, page: str, check: bool) -> int:
    """Write a page; with `check`, instead print its differences to the file and return 1 if any."""
    if not check:
        file.write_text(page)
        return 0
    before, now = file.read_text().splitlines(keepends=True), page.splitlines(keepends=True)
    sys.stdout.writelines(difflib.unified_diff(before, now, str(file), "now", n=0))
    if before == now:
        print(f"as {file.name} says")
    return int(before != now)
