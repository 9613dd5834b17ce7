"""The report: tables for the terminal, JSON for programs."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import roipool
from roipool.cli.compare.differences import Comparison, Difference, Result
from roipool.cli.text import as_strict_json, printable, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["as_json", "outside_tolerance", "print_report"]

_PAIRS_SIDE_BY_SIDE = 3
_FEW_PAIRS = 6
_PAIR_WIDTH = 26
_UNLIMITED = 10_000
# Gap between columns and digits of numbers, from roomy to narrow.
_LAYOUTS = ((2, 3), (1, 3), (1, 2))
_PAIRS_TITLE = "Systems with one letter are equal bit for bit. |difference| of each two letters:"


def outside_tolerance(comparison: Comparison) -> list[Result]:
    """Return the systems that differ too much from the reference, or that did not run."""
    return [
        result
        for result in comparison.results
        if result.error is not None or not comparison.to_reference(result).within
    ]


def print_report(
    comparison: Comparison, facts: Sequence[tuple[str, str]], verdict: Sequence[str]
) -> None:
    """Print the tables on standard output.

    Parameters
    ----------
    comparison : Comparison
        The result.
    facts : sequence of (str, str)
        What was compared, printed above the tables as label and text.
    verdict : sequence of str
        Lines printed below.
    """
    console = _console()
    for label, text in [*facts, ("reference", comparison.reference)]:
        _line(console, f"{label:<9} {text}", "dim")
    console.print()
    for gap, digits in _LAYOUTS:
        table = _systems_table(comparison, gap, digits)
        if _natural_width(console, table) <= console.width:
            break
    _print_whole(console, table)
    for result in comparison.results:
        if result.error is not None:
            _line(console, f"{result.name} did not run: {result.error}", "yellow")
    _print_pairs(console, comparison)
    if verdict:
        console.print()
    for text in verdict:
        _line(console, text, "bold")


def as_json(comparison: Comparison, about: dict[str, Any]) -> str:
    """Express everything as strict JSON; what JSON has no number for becomes null.

    Parameters
    ----------
    comparison : Comparison
        The result.
    about : dict
        Input and options, put before the results.

    Returns
    -------
    str
        Pure ASCII, so that every output can hold it; it ends with a newline.
    """
    content = {
        "format": 1,
        "versions": _versions(),
        **about,
        "reference": comparison.reference,
        "systems": [_system_entry(comparison, result) for result in comparison.results],
        "groups": {group.letter: group.members for group in comparison.groups},
        "pairs": [
            {"system": result.name, "against": against.name, **_difference_entry(apart)}
            for result, against, apart in comparison.all_pairs()
        ],
    }
    return as_strict_json(content)


def _console() -> Console:
    from rich.console import Console

    class _Piped(Console):
        def on_broken_pipe(self) -> None:
            # rich would end the program here, before its exit status is known.
            raise BrokenPipeError

    return _Piped(highlight=False, markup=False, emoji=False)


def _line(console: Console, text: str, style: str) -> None:
    from rich.text import Text

    console.print(Text(_printable(text, console.encoding), style), soft_wrap=True)


def _printable(text: str, encoding: str) -> str:
    """Escape what the output cannot show, and what would steer a terminal."""
    return printable(text).encode(encoding, "backslashreplace").decode(encoding)


def _table(*headings: str, gap: int = 2) -> Table:
    from rich import box
    from rich.table import Table

    # One column of every gap belongs to the box.
    padding = (0, gap - 1, 0, 0)
    table = Table(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False)
    for heading in headings:
        left = heading in ("system", "", "pair")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    return table


def _print_whole(console: Console, table: Table) -> None:
    """Print a table at its own width; in a narrow window lines then wrap, but nothing is lost."""
    table.width = _natural_width(console, table)
    console.print(table, width=table.width, crop=False, overflow="ignore", soft_wrap=True)


def _natural_width(console: Console, table: Table) -> int:
    unlimited = console.options.update(width=_UNLIMITED)
    return console.measure(table, options=unlimited).maximum


def _systems_table(comparison: Comparison, gap: int, digits: int) -> Table:
    headings = ("system", "", "ms", "min", "mean", "max", "greatest\n|diff|", "mean\n|diff|")
    table = _table(*headings, gap=gap)
    for result in comparison.results:
        table.add_row(
            *_system_row(comparison, result, digits), style=_row_style(comparison, result)
        )
    return table


def _row_style(comparison: Comparison, result: Result) -> str:
    if result.error is not None:
        return "yellow"
    return "bold" if result.name == comparison.reference else ""


def _system_row(comparison: Comparison, result: Result, digits: int) -> list[str]:
    if result.error is not None:
        return [result.name, "-", *["-"] * 6]
    group = comparison.groups[result.group]
    apart = comparison.to_reference(result)
    numbers = (
        result.seconds * 1e3,
        *_statistics(group.output),
        apart.greatest,
        apart.mean,
    )
    return [result.name, group.letter, *(short(number, digits) for number in numbers)]


def _print_pairs(console: Console, comparison: Comparison) -> None:
    """Print the pairs of groups, several next to each other where there are many."""
    pairs = _letter_pairs(comparison)
    console.print()
    if not pairs:
        _line(console, "All outputs are equal bit for bit.", "")
        return
    _line(console, _PAIRS_TITLE, "")
    beside = min(_PAIRS_SIDE_BY_SIDE, console.width // _PAIR_WIDTH)
    beside = max(beside, 1) if len(pairs) > _FEW_PAIRS else 1
    height = -(-len(pairs) // beside)
    table = _table(*(["pair", "greatest", "mean", " "] * beside)[:-1])
    for row in range(height):
        cells: list[str] = []
        for pair in pairs[row::height]:
            cells += [*pair, ""]
        table.add_row(*cells[:-1])
    _print_whole(console, table)
    if any(apart.differing == 0 for apart in comparison.pairs.values()):
        _line(console, "0 between two letters: only signs of zeros differ.", "dim")
    if any(math.isinf(apart.greatest) for apart in comparison.pairs.values()):
        _line(console, "inf: one has a NaN or an infinity where the other has not.", "dim")


def _letter_pairs(comparison: Comparison) -> list[tuple[str, str, str]]:
    letters = [group.letter for group in comparison.groups]
    return [
        (f"{letters[i]}-{letters[j]}", short(apart.greatest), short(apart.mean))
        for i in range(len(letters))
        for j in range(i + 1, len(letters))
        for apart in [comparison.between(i, j)]
    ]


def _statistics(output: np.ndarray[Any, np.dtype[np.float32]]) -> tuple[float, float, float]:
    """Return minimum, mean and maximum of what is not NaN; NaN where there is nothing."""
    values = output[~np.isnan(output)].astype(np.float64)
    if values.size == 0:
        return math.nan, math.nan, math.nan
    with np.errstate(all="ignore"):
        return float(values.min()), float(values.mean()), float(values.max())


def _versions() -> dict[str, str]:
    return {
        "roipool": roipool.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _system_entry(comparison: Comparison, result: Result) -> dict[str, Any]:
    if result.error is not None:
        return {"name": result.name, "error": result.error}
    group = comparison.groups[result.group]
    low, mean, high = _statistics(group.output)
    return {
        "name": result.name,
        "error": None,
        "group": group.letter,
        "seconds": result.seconds,
        "min": low,
        "mean": mean,
        "max": high,
        "nan_elements": int(np.isnan(group.output).sum()),
        "to_reference": _difference_entry(comparison.to_reference(result)),
    }


def _difference_entry(apart: Difference) -> dict[str, Any]:
    return {
        "greatest_difference": apart.greatest,
        "mean_difference": apart.mean,
        "differing_elements": apart.differing,
        "within_tolerance": apart.within,
    }
