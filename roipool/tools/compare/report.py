"""Findings for a terminal, in lines no longer than its width if possible.

By default a summary of one screen; ``--details`` prints all tables. The lines are formatted here;
rich, if installed, only adds colours.
"""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from roipool._addresses import install
from roipool.cli.text import printable, short
from roipool.tools.compare import summary
from roipool.tools.compare.differences import Difference, PartComparison, Result
from roipool.tools.compare.json_output import place_of, statistics_of
from roipool.tools.compare.problem import PARTS
from roipool.tools.compare.reasons import number
from roipool.tools.compare.result import Findings, Pair
from roipool.tools.compare.values import NAME, FloatArray, Values

__all__ = ["Text", "print_report", "print_texts"]

# The most entries that are listed; the rest is only counted:
_SHOWN = 26  # reasons
_FEW = 16  # numbers
_LISTED = 6  # names of implementations that lack a gradient


class _Line(NamedTuple):
    text: str
    style: str = ""


class Style(NamedTuple):
    """Options of the report."""

    details: bool = False  # whether to print all tables and numbers rather than a summary
    reference_is_chosen: bool = False  # whether the user named the reference


def print_report(
    findings: Findings, options: str, notes: Sequence[str], verdict: Sequence[str], style: Style
) -> None:
    """Print findings on standard output.

    Parameters
    ----------
    notes : sequence of str
        Notes on arguments that look like mistakes.
    verdict : sequence of str
        Lines to print at the end.
    """
    show, width = _output()
    for line in _lines(findings, options, notes, verdict, style, width):
        show(line)


class Text(NamedTuple):
    """A paragraph; its lines after the first are indented."""

    text: str
    indent: int = 0
    style: str = ""


def print_texts(texts: Iterable[Text]) -> None:
    """Print paragraphs on standard output."""
    show, width = _output()
    for text, indent, style in texts:
        for line in _wrapped(text, width, indent, style):
            show(line)


def _output() -> tuple[Callable[[_Line], None], int]:
    """Return a function that prints a line, and the width of a line."""
    encoding = sys.stdout.encoding or "utf-8"

    def plain(line: _Line) -> None:
        print(_encodable(line.text, encoding))

    width = max(shutil.get_terminal_size().columns, 20) if sys.stdout.isatty() else 80
    try:
        from rich.console import Console
        from rich.text import Text
    except ModuleNotFoundError:
        if sys.stdout.isatty():
            hint = f"rich is not installed: plain text ({install('cli')})"
            print(f"roipool: {hint}", file=sys.stderr)
        return plain, width

    class _Piped(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit here, before the exit status is known.
            raise BrokenPipeError

    console = _Piped(highlight=False, markup=False, emoji=False)

    def coloured(line: _Line) -> None:
        console.print(Text(_encodable(line.text, encoding), line.style), soft_wrap=True)

    return coloured, console.width


def _encodable(text: str, encoding: str) -> str:
    """Escape control characters, and characters that the encoding lacks."""
    return printable(text).encode(encoding, "backslashreplace").decode(encoding)


def _lines(
    findings: Findings,
    options: str,
    notes: Sequence[str],
    verdict: Sequence[str],
    style: Style,
    width: int,
) -> Iterator[_Line]:
    shape = " x ".join(map(str, findings.features.values.shape))
    count = len(findings.boxes.rois)
    facts = [
        f"{findings.features.name}, {findings.features.kind} {shape}",
        f"{count} box{'' if count == 1 else 'es'} ({findings.boxes.name})",
        options,
        *findings.versions.values(),
    ]
    yield from _wrapped("; ".join(facts), width, 2, "dim")
    for name, reason in findings.absent.items():
        yield from _wrapped(f"absent: {name}: {reason}", width, 2, "yellow")
    for note in notes:
        yield from _wrapped(f"note: {note}", width, 2, "yellow")
    for comparison in findings.parts:
        yield from _part(findings, comparison, style, width)
    if not style.details:
        yield _Line("")
        pictures = "--save FILE" if findings.problem.is_volume else "--html FILE"
        more = f"More: --details, pictures: {pictures}, numbers: --json FILE."
        yield from _wrapped(more, width)
    if verdict:
        yield _Line("")
    for text in verdict:
        indent = len(text) - len(text.lstrip())
        yield from _wrapped(text, width, indent + 2, "bold")


def _part(
    findings: Findings, comparison: PartComparison, style: Style, width: int
) -> Iterator[_Line]:
    yield _Line("")
    if style.details:
        title = PARTS[comparison.part]
        yield from _wrapped(f"{title}, measured against {comparison.reference}", width, 2, "bold")
        yield _Line("")
        yield from _table(comparison, width)
    elif findings.values is not None and comparison.part == "forward":
        yield from _what_gives(findings, findings.values, width)
        return
    else:
        yield from _summary(findings, comparison, style, width)
    yield from _failed(comparison.results, width)
    nothing = _why_nothing_is_compared(findings, comparison)
    if nothing or not comparison.pairs:
        yield from _wrapped(nothing or "All results are equal bit for bit.", width)
    elif style.details:
        yield from _matrix(comparison, width)
        yield from _explanations(findings, comparison, width)


def _why_nothing_is_compared(findings: Findings, comparison: PartComparison) -> str:
    if len(findings.boxes.rois) == 0:
        return "There are no boxes: nothing is compared."
    ran = [result.name for result in comparison.results if result.error is None]
    return "" if len(ran) > 1 else f"Only {ran[0]} ran: nothing is compared."


# ---- A screenful


def _summary(
    findings: Findings, comparison: PartComparison, style: Style, width: int
) -> Iterator[_Line]:
    """Yield a line for each group of agreeing systems: their difference and its explanation."""
    part = "" if comparison.part == "forward" else f"{PARTS[comparison.part]}: "
    for section in summary.sections(findings, comparison, style.reference_is_chosen):
        what = section.family or "systems"
        is_alone = not (section.agreeing or section.lines)
        how = (
            f": only {section.reference}" if is_alone else f", measured against {section.reference}"
        )
        yield from _wrapped(f"{part}{what}{how}", width, 2, "bold")
        if section.agreeing:
            yield from _wrapped(f"   same  {', '.join(section.agreeing)}", width, 9)
        for line in section.lines:
            why = f": {line.why}" if line.why else ""
            text = f"{short(line.off):>7}  {', '.join(line.members)}{why}"
            yield from _wrapped(text, width, 9)


# ---- Values that the user gave


def _what_gives(findings: Findings, values: Values, width: int) -> Iterator[_Line]:
    """Yield what gives the values, or what comes nearest to them."""
    matches, is_equal = findings.identified(NAME, values)
    asked = findings.problem.options
    if is_equal:
        title = f"The values{_numbers(values.numbers)} are those of:"
        yield from _wrapped(title, width, 2, "bold")
        for match in matches[:_SHOWN]:
            yield from _wrapped(f"   {match.words(asked)}", width, 5)
        return
    title = "No known system, option or mistake gives the values"
    yield from _wrapped(f"{title}{_numbers(values.numbers)}. Nearest:", width, 2, "bold")
    for match in matches:
        numbers = _numbers(match.numbers)
        text = f"{short(match.off):>7}  {match.words(asked)}{numbers and ':'}{numbers}"
        yield from _wrapped(text, width, 9)


def _numbers(numbers: FloatArray) -> str:
    """Return a few numbers as text, each after a space; nothing for many."""
    if numbers.size > _FEW:
        return ""
    return "".join(f" {number:.6g}" for number in numbers.ravel().tolist())


# ---- The table of implementations


def _table(comparison: PartComparison, width: int) -> Iterator[_Line]:
    """Yield a line for each result; on narrow terminals two lines, or fewer columns."""
    ran = [result for result in comparison.results if result.error is None]
    for headings, cells_of in _LAYOUTS:
        rows = [cells_of(comparison, result) for result in ran]
        columns = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        if sum(columns) + len(columns) - 1 <= width:
            break
    else:
        columns[0] = 2
        yield _Line(_row([headings[0]], columns))
        headings, rows = ["", *headings[1:]], [["", *row[1:]] for row in rows]
    narrow = sum(columns) + len(columns) - 1 <= width and columns[0] == 2
    yield _Line(_row(headings, columns))
    yield _Line(" ".join("-" * column for column in columns), "dim")
    for result, row in zip(ran, rows, strict=True):
        style = "bold" if result.name == comparison.reference else ""
        if narrow:
            yield _Line(result.name, style)
        yield _Line(_row(row, columns), style)


def _row(cells: Sequence[str], columns: Sequence[int]) -> str:
    first, *rest = zip(cells, columns, strict=False)
    aligned = [f"{cell:>{column}}" for cell, column in rest]
    return " ".join([f"{first[0]:<{first[1]}}", *aligned]).rstrip()


def _all_cells(comparison: PartComparison, result: Result) -> list[str]:
    name, letter, *apart = _few_cells(comparison, result)
    low, mean, high = statistics_of(comparison.groups[result.group].output)
    return [name, letter, *(short(number) for number in (low, mean, high)), *apart]


def _few_cells(comparison: PartComparison, result: Result) -> list[str]:
    apart = comparison.to_reference(result)
    letter = comparison.groups[result.group].letter
    return [result.name, letter, short(apart.greatest), short(apart.ulps)]


_LAYOUTS = (
    (["system", "", "min", "mean", "max", "|diff|", "ulps"], _all_cells),
    (["system", "", "|diff|", "ulps"], _few_cells),
)


def _failed(results: Sequence[Result], width: int) -> Iterator[_Line]:
    """Yield failures with their reasons, and one line per missing gradient."""
    for result in results:
        if result.error is not None and not result.lacks:
            yield from _wrapped(f"{result.name} did not run: {result.error}", width, 2, "yellow")
    lacking: dict[str, list[str]] = {}
    for result in results:
        if result.lacks:
            lacking.setdefault(str(result.error), []).append(result.name)
    for reason, names in lacking.items():
        listed = ", ".join(names[:_LISTED])
        if len(names) > _LISTED:
            listed += f" and {len(names) - _LISTED} more"
        text = f"{reason.replace('has no', 'no', 1)}: {listed}"
        yield from _wrapped(text, width, 2, "dim")


# ---- The matrix of pairs


def _matrix(comparison: PartComparison, width: int) -> Iterator[_Line]:
    """Yield the largest differences of all pairs of groups, as many columns side by side as fit.

    One half of the matrix has the differences, the other half the differences in ulps.
    """
    letters = [group.letter for group in comparison.groups]
    order = range(len(letters))
    cells = [[_cell(comparison, i, j) for j in order] for i in order]
    column = max(len(cell) for row in [*cells, letters] for cell in row)
    head = max(map(len, letters))
    beside = max((width - head) // (column + 1), 1)
    yield _Line("")
    yield from _wrapped(
        "Systems of one letter are equal bit for bit. Greatest difference of each two letters: "
        "below the diagonal the absolute difference, above it ulps (steps of float32).",
        width,
    )
    for first in range(0, len(letters), beside):
        shown = order[first : first + beside]
        yield _Line(" " * head + "".join(f" {letters[j]:>{column}}" for j in shown), "bold")
        for i in order:
            yield _Line(
                f"{letters[i]:>{head}}" + "".join(f" {cells[i][j]:>{column}}" for j in shown)
            )
    if any(apart.differing == 0 for apart in comparison.pairs.values()):
        yield _Line("0 between two letters: only signs of zeros differ.", "dim")
    if any(math.isinf(apart.greatest) for apart in comparison.pairs.values()):
        yield from _wrapped(
            "inf: only one has a NaN or an infinity at some element.", width, style="dim"
        )


def _cell(comparison: PartComparison, row: int, column: int) -> str:
    if row == column:
        return "."
    apart = comparison.between(row, column)
    return short(apart.greatest if row > column else apart.ulps, 2)


# ---- Why


def _explanations(findings: Findings, comparison: PartComparison, width: int) -> Iterator[_Line]:
    yield _Line("")
    home = comparison.groups[comparison.reference_group]
    yield _Line(f"Where each differs most from {home.letter}, and why:")
    pairs = [pair for pair in findings.to_reference(comparison) if pair.apart.where]
    for pair in pairs[:_SHOWN]:
        yield from _wrapped(_explanation(findings, comparison, pair), width, 3)
    if len(pairs) > _SHOWN:
        yield _Line(f"... and {len(pairs) - _SHOWN} more, in --json.", "dim")


def _explanation(findings: Findings, comparison: PartComparison, pair: Pair) -> str:
    group, against = comparison.groups[pair.group], comparison.groups[pair.against]
    ours, theirs = (float(side.output[pair.apart.where]) for side in (group, against))
    place = _place(findings, comparison.part, pair.apart)
    why = pair.verdict.words
    text = f"{group.letter}  {place}: {number(ours)}, not {number(theirs)}"
    return f"{text}: {why}." if why else f"{text}."


def _place(findings: Findings, part: str, apart: Difference) -> str:
    """Describe an element, with boxes counted from 1."""
    place = place_of(findings.problem, part, apart.where)
    if part == "boxes":
        return f"{place['coordinate']} of box {int(place['box']) + 1}"
    position = ", ".join(str(place[axis]) for axis in findings.problem.axes)
    if part == "features":
        return f"image {place['image']}, channel {place['channel']}, cell ({position})"
    return f"box {int(place['box']) + 1}, bin ({position}), channel {place['channel']}"


def _wrapped(text: str, width: int, indent: int = 0, style: str = "") -> Iterator[_Line]:
    """Yield a text in lines that fit; long words are not broken."""
    lines = textwrap.wrap(
        printable(text),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    for line in lines:
        yield _Line(line, style)
