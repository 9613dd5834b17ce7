"""Progress of long work, shown on standard error if it is a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator

from roipool.cli.text import printable

__all__ = ["progress"]

_INTERVAL = 0.1  # seconds between updates
_BAR = 20  # characters


@contextlib.contextmanager
def progress(total: int | None = None) -> Iterator[Callable[[str, int], None]]:
    """Show a status line while a block runs, with a bar if the total is known.

    Yields
    ------
    callable
        Takes the name of the next step and the number of steps done; an empty name clears the line.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    shown = 0.0

    def tell(what: str, done: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if not terminal or (what and now - shown < _INTERVAL):
            return
        shown = now
        width = shutil.get_terminal_size().columns - 1
        line = f"{_count(done, total)} {printable(what)}"[:width] if what else ""
        print(f"\r{line:<{width}}\r{line}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        tell("", 0)


def _count(done: int, total: int | None) -> str:
    if not total:
        return str(done)
    full = _BAR * done // total
    return f"[{'=' * full:<{_BAR}}] {done}/{total}"
