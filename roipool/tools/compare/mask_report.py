"""Runs ``roipool compare --masks``: a table, and a page with masks over the photograph."""

from __future__ import annotations

import argparse
import html
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from roipool.cli import files, stdout
from roipool.cli.text import printable
from roipool.tools.compare import masks, page, report
from roipool.tools.compare.masks import Bits, Input, MaskGroup, cell_of, words_of

__all__ = ["run"]

_MAX_MASKS = 24
_SIDE = 32  # pixels of an enlarged part, along each axis
_ROOM = 8  # pixels around a mask
# What covers the photograph: pixels of both, of the first group alone, of the other alone.
_COLOURS = np.array([[40, 220, 130], [224, 0, 122], [10, 110, 189]], np.float64)
_OPACITY = (0.4, 0.95, 0.95)

Window = tuple[slice, slice]


def run(arguments: argparse.Namespace) -> int:
    """Run the command with ``--masks``; return the exit status."""
    files.check_outputs(
        {"--html": arguments.html}, (arguments.image, arguments.boxes, arguments.masks)
    )
    given = masks.read(arguments)
    groups = masks.compared(given)
    if arguments.html is not None:
        content = as_html(given, groups).encode()
        with files.replacing(arguments.html) as stream:
            stream.write(content)
    with stdout.reader_may_stop():
        report.print_texts(_texts(given, groups))
    return 0


# ---- Text


def _texts(given: Input, groups: Sequence[MaskGroup]) -> Iterator[report.Text]:
    yield report.Text(printable(given.about), 2, "dim")
    for name, why in masks.absent(given).items():
        yield report.Text(f"absent: {name}: {why}", 2, "yellow")
    for group in groups:
        yield report.Text(f"{group.letter}  {', '.join(group.names)}", 3, "bold")
        yield report.Text(f"   {words_of(group.names)}", 3)
    if len(groups) == 1:
        yield report.Text("All set the same pixels.")
        return
    yield report.Text("Pixels that A sets, and how many others set besides (+) and leave out (-):")
    names = [*map(str, range(1, len(given.masks) + 1)), "all"]
    rows = [[cell_of(each, number) for each in groups] for number in range(len(names))]
    width = max(len(cell) for row in rows for cell in row)
    for name, row in zip(["mask", *names], [[each.letter for each in groups], *rows], strict=True):
        yield report.Text(f"{name:>6}" + "".join(f"  {cell:>{width}}" for cell in row))


# ---- The page


def as_html(given: Input, groups: Sequence[MaskGroup]) -> str:
    """Return the page: the masks on which systems differ most."""
    apart = np.array([[more + fewer for _, more, fewer in group.pixels] for group in groups])
    order = np.argsort(-apart.sum(axis=0), kind="stable")[:_MAX_MASKS]
    hidden = len(given.masks) - len(order)
    parts = [f"<p>{html.escape(printable(given.about))}</p>", _legend(groups)]
    parts += [_mask(given, groups, int(number)) for number in order]
    if hidden:
        parts.append(f"<p>{hidden} masks on which systems differ less are omitted.</p>")
    return page.static_page("roipool compare: masks", "\n".join(parts))


def _legend(groups: Sequence[MaskGroup]) -> str:
    items = [
        f"<li><b>{group.letter}</b> {html.escape(', '.join(group.names))}: "
        f"{html.escape(words_of(group.names))}</li>"
        for group in groups
    ]
    key = (
        '<p>Pixels: <span class="key both">both</span> <span class="key first">only A</span> '
        '<span class="key other">only the other</span></p>'
    )
    return f"<ul>{''.join(items)}</ul>{key if len(groups) > 1 else ''}"


def _mask(given: Input, groups: Sequence[MaskGroup], number: int) -> str:
    """Return the section of a mask: all of it, and the edge on which each group differs most."""
    first = groups[0].paste(given, number)
    count = f"A: {cell_of(groups[0], number)} pixels"
    figures = [_figure(_over(given, first, first, _window_of(first)), count)]
    for group in groups[1:]:
        _, more, fewer = group.pixels[number]
        if not more + fewer:
            figures.append(f"<figure><figcaption>{group.letter}: as A</figcaption></figure>")
            continue
        own = group.paste(given, number)
        part = _over(given, first, own, _densest(own ^ first))
        figures.append(_figure(part, f"{group.letter}: {cell_of(group, number)} pixels"))
    box = ", ".join(f"{value:.6g}" for value in given.boxes[number].tolist())
    return (
        f"<section><h2>Mask {number + 1}, box {box}</h2>"
        f'<div class="row">{"".join(figures)}</div></section>'
    )


def _figure(pixels: NDArray[np.uint8], caption: str) -> str:
    return (
        f'<figure><img src="{page.as_data_url(pixels)}" alt="{html.escape(caption)}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _over(given: Input, first: Bits, other: Bits, window: Window) -> NDArray[np.uint8]:
    """Return a part of the photograph under the pixels that are set."""
    photograph = given.picture[window].astype(np.float64) * 255
    one, two = first[window], other[window]
    for kind, covered in enumerate((one & two, one & ~two, two & ~one)):
        share = _OPACITY[kind]
        photograph[covered] = (1 - share) * photograph[covered] + share * _COLOURS[kind]
    return photograph.round().astype(np.uint8)


def _window_of(pixels: Bits) -> Window:
    """Return the part of the picture that holds all pixels that are set, with some room."""
    ends = []
    for axis in (1, 0):
        places = np.flatnonzero(pixels.any(axis=axis))
        low, high = (places[0], places[-1] + 1) if len(places) else (0, pixels.shape[1 - axis])
        ends.append(slice(max(int(low) - _ROOM, 0), int(high) + _ROOM))
    return ends[0], ends[1]


def _densest(pixels: Bits) -> Window:
    """Return the part of `_SIDE` pixels along each axis that has the most pixels set."""
    rows, columns = (min(_SIDE, size) for size in pixels.shape)
    sums = np.pad(pixels.cumsum(0, np.int32).cumsum(1), ((1, 0), (1, 0)))
    inside = sums[rows:, columns:] - sums[:-rows, columns:]
    inside = inside - (sums[rows:, :-columns] - sums[:-rows, :-columns])
    y, x = (int(place) for place in np.unravel_index(int(inside.argmax()), inside.shape))
    return slice(y, y + rows), slice(x, x + columns)
