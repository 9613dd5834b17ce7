"""Pictures of where each operation reads the map: measured, not computed a second time.

The weights of cells are the answers to maps of which each has one cell of 1; the positions of
samples are those that the engine gives for what the call asks of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from _extension import calls
from _extension.calls import Box, FloatArray
from roipool import _cpu
from roipool._boxes import Regions
from roipool._definitions import OPS, TRAITS
from roipool._kept import observed
from roipool._pooling import Call
from roipool._request import Pooling

HEIGHT, WIDTH = 7, 9
BOX = (1.6, 1.2, 6.8, 4.9)
MOST_SAMPLES = 64  # of a bin, far more than the pictures have
INTEGRALS = {
    each.definition for op in OPS.values() for each in op.variants.values() if each.is_integral
}

CELL, EDGE = 34, 8  # pixels of the picture
COLOURS = ("#4477aa", "#ee7733", "#228833", "#aa3377")


class Sampling(NamedTuple):
    """What a call reads: `weights` (bins, H, W), and for each bin its samples' y and x."""

    weights: FloatArray
    positions: list[list[tuple[float, float]]]


def sampling(name: str, box: Box = BOX) -> Sampling:
    """Return what one of `calls.CALLS` reads of a map of 7 by 9 cells."""
    cells = HEIGHT * WIDTH
    one_cell_each = np.eye(cells, dtype=np.float32).reshape(1, cells, HEIGHT, WIDTH)
    asked: list[tuple[Regions, Pooling]] = []
    with (
        observed(),
        mock.patch.object(Call, "average", _noting(Call.average, asked)),
        mock.patch.object(Call, "maximum", _noting(Call.maximum, asked)),
    ):
        pooled = calls.answer(name, one_cell_each, box)
    weights = pooled.reshape(cells, -1).T.reshape(-1, HEIGHT, WIDTH)
    return Sampling(weights, _positions(*asked[-1]))


def _noting(method: Callable[..., Any], asked: list[tuple[Regions, Pooling]]) -> Any:
    """Return the method, which notes what is asked of the engine, too."""

    def noting(self: Call, features: Any, regions: Regions, pooling: Pooling, **rest: Any) -> Any:
        asked.append((regions, pooling))
        return method(self, features, regions, pooling, **rest)

    return noting


def _positions(regions: Regions, pooling: Pooling) -> list[list[tuple[float, float]]]:
    """Ask the engine where the samples of each bin of the first box are, by their numbers."""
    bins = pooling.output_size[0] * pooling.output_size[1]
    definition = pooling.definition.name
    if TRAITS[definition].kind in ("points", "moved") or definition in INTEGRALS:
        return [[] for _ in range(bins)]  # such plans hold weights, not samples
    # Positions do not depend on the groups of channels.
    ungrouped = pooling.definition._replace(group_size=(1, 1))
    pooling = pooling._replace(definition=ungrouped, layout="NCHW")
    shape = (1, MOST_SAMPLES, HEIGHT, WIDTH)
    numbers = np.broadcast_to(
        np.arange(MOST_SAMPLES)[None, :, None, None], (1, MOST_SAMPLES, *pooling.output_size)
    )
    y, x = _cpu.argmax_positions(numbers, regions, pooling, shape)
    # A number that the bin does not have gives a position where another sample is, or none.
    exists = _cpu.argmax_at(y, x, regions, pooling, shape) == numbers
    by_bin = [array[0].reshape(MOST_SAMPLES, bins).T for array in (y, x, exists)]
    return [
        [(float(at_y), float(at_x)) for at_y, at_x, is_one in zip(*one, strict=True) if is_one]
        for one in zip(*by_bin, strict=True)
    ]


def picture(name: str) -> str:
    """Return the SVG picture of one call: cells by their weight, samples, and the box."""
    seen = sampling(name)
    width, height = WIDTH * CELL + 2 * EDGE, HEIGHT * CELL + 2 * EDGE
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>Cells and samples of {name}</title>",
        f'<rect width="{width}" height="{height}" rx="4" fill="#ffffff"/>',
        *_cells(seen.weights),
        *_grid(),
        _box(name),
        *_samples(seen.positions),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _at(coordinate: float) -> str:
    """Return a coordinate of the picture: cell 0 covers [0, 1], as a box's pixels do."""
    return f"{EDGE + coordinate * CELL:.1f}"


def _cells(weights: FloatArray) -> list[str]:
    """Colour each cell by the bins that read it, as strongly as they do."""
    shades = weights / weights.max()
    return [
        f'<rect x="{_at(x)}" y="{_at(y)}" width="{CELL}" height="{CELL}" '
        f'fill="{COLOURS[number]}" fill-opacity="{0.6 * shades[number, y, x]:.2f}"/>'
        for number, y, x in np.argwhere(shades > 0.005)
    ]


def _grid() -> list[str]:
    """Draw the borders of the cells."""
    lines = [(0, at, WIDTH, at) for at in range(HEIGHT + 1)]
    lines += [(at, 0, at, HEIGHT) for at in range(WIDTH + 1)]
    return [
        f'<line x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}" stroke="#bbbbbb"/>'
        for x1, y1, x2, y2 in lines
    ]


def _box(name: str) -> str:
    """Draw the box as the caller gave it."""
    x1, y1, x2, y2 = BOX
    turn = -np.degrees(calls.ANGLE) if calls.is_turned(name) else 0.0
    centre = f"{_at((x1 + x2) / 2)} {_at((y1 + y2) / 2)}"
    return (
        f'<rect x="{_at(x1)}" y="{_at(y1)}" width="{(x2 - x1) * CELL:.1f}" '
        f'height="{(y2 - y1) * CELL:.1f}" transform="rotate({turn:.2f} {centre})" fill="none" '
        'stroke="#000000" stroke-width="2" stroke-dasharray="6 3"/>'
    )


def _samples(positions: list[list[tuple[float, float]]]) -> list[str]:
    """Draw the samples, of which position 0 is the centre of cell 0; shared ones side by side."""
    drawn: dict[tuple[float, float], int] = {}
    circles = []
    for number, samples in enumerate(positions):
        for y, x in samples:
            earlier = drawn[y, x] = drawn.get((y, x), -1) + 1
            circles.append(
                f'<circle cx="{_at(x + 0.5 + 0.22 * earlier)}" cy="{_at(y + 0.5)}" r="4" '
                f'fill="{COLOURS[number]}" stroke="#ffffff"/>'
            )
    return circles
