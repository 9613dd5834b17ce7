"""Progress of long work on standard error, for people only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress"]


@contextlib.contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[str], None]]:
    """Show a bar while a block runs: on a terminal, where rich is installed; nothing elsewhere.

    Parameters
    ----------
    total : int
        How many steps there are.
    what : str
        What is done.

    Yields
    ------
    callable
        To be told the name of each step before it begins.
    """
    if not (sys.stderr is not None and sys.stderr.isatty()):
        yield lambda name: None
        return
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ModuleNotFoundError:
        yield lambda name: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        begun = 0

        def tell(name: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=escape(f"{what} {name}"))
            begun += 1

        yield tell
