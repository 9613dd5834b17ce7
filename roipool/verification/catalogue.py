"""Awkward input for every operation: a case is geometry, to be called in any type.

Pixels and gradients are multiples of 1/16 of at most 8 significant bits, so float16, bfloat16,
float32 and float64 all hold them exactly and one run of the oracle serves all four.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Row = Sequence[float]

nan, inf = float("nan"), float("inf")


@dataclass(frozen=True, eq=False)
class Case:
    """Maps, boxes and options; `samplings` and `alignments` make variants for ROI align."""

    name: str
    rois: Sequence[Row] = ((0, 1.3, 1.1, 7.6, 6.2), (0, 0.4, 2.7, 4.9, 7.8))
    shape: tuple[int, int, int, int] = (1, 3, 8, 9)
    size: tuple[int, int] = (2, 3)
    scale: float = 1.0
    pixels: str = "random"
    samplings: Sequence[int | tuple[int, int]] = (0, 2)
    alignments: Sequence[bool] = (True, False)
    endless: bool = False  # its adaptive grids have more samples than 32 bits can number
    sampling: int | tuple[int, int] = field(default=0)
    aligned: bool = field(default=True)

    @property
    def finite(self) -> bool:
        """Whether all pixels are numbers."""
        return self.pixels in ("random", "ties", "at most zero", "constant", "negative")

    @property
    def numbered(self) -> bool:
        """Whether sample indices of a bin of ROI align, and so the argmax, fit into 32 bits."""
        return not (self.endless and self.sampling == 0)

    def __str__(self) -> str:
        return self.name

    def numbers(self, shape: Sequence[int], what: str) -> Array:
        """Return numbers that depend on the case's name only."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name} {what}".encode()))
        return rng.integers(-128, 128, shape) / 16

    def features(self) -> Array:
        """Return maps as float64 (N, C, H, W)."""
        maps = self.numbers(self.shape, "pixels")
        places = np.random.default_rng(zlib.crc32(self.name.encode())).random(self.shape)
        match self.pixels:
            case "constant":
                maps[:] = 1.5
            case "ties":
                maps = np.round(maps / 8)
            case "at most zero":
                maps = np.minimum(np.round(maps / 8), 0)
            case "negative":
                maps = -np.abs(maps) - 1
            case "some nan":
                maps[places < 0.15] = nan
            case "some inf":
                maps[places < 0.1], maps[places > 0.9] = inf, -inf
            case "nan and inf":
                maps[places < 0.1], maps[places > 0.9] = inf, nan
            case "all nan":
                maps[:] = nan
            case "lowest":
                maps[:] = -inf
        return maps

    def gradient(self) -> Array:
        """Return a gradient of the pooled values as float64 (K, C, PH, PW)."""
        return self.numbers((len(self.rois), self.shape[1], *self.size), "gradient")

    def table(self) -> Array:
        """Return the boxes as (K, 5)."""
        return np.array(self.rois, np.float64).reshape(-1, 5)

    def boxes(self) -> Array:
        """Return the boxes as crop_and_resize takes them: (K, 4) y1, x1, y2, x2, normalised."""
        last_x, last_y = (max(size - 1, 1) for size in (self.shape[3], self.shape[2]))
        x1, y1, x2, y2 = self.table()[:, 1:].T * self.scale
        return np.stack([y1 / last_y, x1 / last_x, y2 / last_y, x2 / last_x], axis=1)

    def box_indices(self) -> Array:
        """Return the image of each box as integers."""
        return self.table()[:, 0].astype(np.int64)

    def variants(self) -> Iterator[Case]:
        """Return the case for each sampling ratio and alignment."""
        for sampling, aligned in itertools.product(self.samplings, self.alignments):
            name = f"{self.name}, sampling {sampling}, {'aligned' if aligned else 'not aligned'}"
            yield replace(self, name=name, sampling=sampling, aligned=aligned)


def boxes_on(image: int, *corners: Row) -> list[Row]:
    """Return rows of one image."""
    return [(image, *box) for box in corners]


PLAIN = boxes_on(0, (1.3, 1.1, 7.6, 6.2), (0.4, 2.7, 4.9, 7.8))
NOT_FINITE = [
    [bad if i == column else value for i, value in enumerate((0, 0.5, 0.5, 5.0, 5.0))]
    for bad in (nan, inf, -inf)
    for column in (1, 2, 3, 4)
] + boxes_on(
    0,
    (nan,) * 4,
    (-inf, -inf, inf, inf),
    (-inf, -inf, 5, 5),
    (1, 1, inf, inf),
    (inf, 1, -inf, 5),
    (inf, 1, inf, 5),
    PLAIN[0][1:],
)
HUGE = boxes_on(0, *((-size, -size, size, size) for size in (1e6, 1e8, 1e10)), (2, 2, 1e6, 1e6))
LONG = boxes_on(
    0,
    *((1.5, -size, 6.25, size) for size in (1e6, 1e10)),
    (-1e10, 1, 5, 6),
    (1, 1, 1e10, 6),
    (3, 2, 9, 1e6),
    (-3.3e6, 1, 4.1e6, 6),
)

CASES = [
    Case("inside", samplings=(0, 1, 2, 3, (2, 3), (0, 2))),
    Case("NaN and infinite boxes", NOT_FINITE),
    Case(
        "reversed",
        boxes_on(0, (6.5, 1.2, 2.5, 5.1), (1.2, 6.5, 5.1, 2.5), (6.3, 6.1, 2.2, 1.4), (7, 7, 1, 1)),
    ),
    Case(
        "no extent",
        boxes_on(0, (2, 2, 2, 2), (2.5, 2.5, 2.5, 2.5), (3.2, 1.1, 3.2, 6.6), (1.1, 4, 6.6, 4)),
    ),
    Case(
        "outside",
        boxes_on(
            0, (-6, -6, -2, -2), (12, 12, 16, 16), (-6, 2, -3, 5), (2, 11, 5, 15), (2, -9, 5, -4)
        ),
    ),
    Case(
        "half outside",
        boxes_on(0, (-3.3, -2.2, 4.1, 5), (4, 3, 13.5, 12.5), (-4, 2, 14, 6), (2, -5, 6, 15)),
    ),
    Case("around the map", boxes_on(0, (-4, -4, 13, 12), (-20.5, -30, 40, 50))),
    Case(
        "on halves",
        boxes_on(
            0,
            (0.5, 0.5, 2.5, 2.5),
            (1.5, 2.5, 5.5, 6.5),
            (-0.5, -1.5, 3.5, 4.5),
            (-2.5, -0.5, 9, 9.5),
        ),
        size=(2, 2),
    ),
    Case("on bin edges", boxes_on(0, (0, 0, 5, 3), (1, 2, 6, 5), (2, 1, 7, 6)), size=(2, 3)),
    # One sample, in the middle of the box: at -1, at H and W, and just off them.
    Case(
        "samples at -1 and at H",
        boxes_on(
            0,
            *((a, b, a + 1, b + 1) for a, b in itertools.product((-1, 9), (-1, 8))),
            (-1.5, -1.5, -0.5, -0.5),
            (8.5, 7.5, 9.5, 8.5),
            (-1.000001, 0, 0, 5),
            (2, 8.000001, 4, 9),
            (-1.5000001, 1, -0.5, 2),
        ),
        size=(1, 1),
        samplings=(1, 2),
    ),
    # So many are not walked outside the map; their weights are exact.
    Case(
        "many samples in the margin",
        boxes_on(0, (-1.25, -1.5, 0.75, 0.5), (7.5, 6.5, 9.5, 8.5)),
        size=(1, 1),
        samplings=(32,),
    ),
    # In float32 half of them round to -1, and to H and W; the others are one rounding outside.
    Case(
        "many samples within a rounding of the margin",
        boxes_on(
            0,
            (-0.5 - 2.0**-23, -0.5 - 2.0**-23, -0.5, -0.5),
            (9.5, 8.5, 9.5 + 2.0**-20, 8.5 + 2.0**-20),
        ),
        size=(1, 1),
        samplings=(32,),
        alignments=(True,),
    ),
    Case("whole map", boxes_on(0, (0, 0, 8, 7), (0, 0, 9, 8), (-0.5, -0.5, 8.5, 7.5))),
    Case("one box per cell", boxes_on(0, (0, 0, 9, 8)), size=(8, 9), samplings=(1,)),
    Case("huge", HUGE, endless=True),
    Case("huge, many bins", HUGE, size=(5, 7), samplings=(0,), endless=True),  # wide indices
    Case("long", LONG),
    Case(
        "beyond float32",
        boxes_on(0, (1, 1, 1e39, 5), (-1e39, 1, 5, 5), (1, 1, 5, 1e39)),
        samplings=(0, 2, 20),
    ),
    Case(
        "tiny",
        boxes_on(0, *((2.3, 3.6, 2.3 + size, 3.6 + size) for size in (1e-3, 1e-7, 1e-20))),
        samplings=(0, 3),
    ),
    Case("no boxes", []),
    Case("no images", [], shape=(0, 3, 8, 9)),
    Case("no channels", shape=(1, 0, 8, 9)),
    Case("no rows", shape=(1, 3, 0, 9)),
    Case("no columns", shape=(1, 3, 8, 0)),
    Case("no cells", shape=(1, 3, 0, 0)),
    *(
        Case(f"{channels} channels", shape=(2, channels, 6, 7), rois=[*PLAIN, (1, -1, 1, 5, 7.2)])
        for channels in (1, 4, 5, 16, 17, 33)
    ),
    Case(
        "1 by 1 map",
        boxes_on(0, (0, 0, 1, 1), (-0.5, -0.5, 0.5, 0.5), (-2, -2, 3, 3)),
        shape=(1, 2, 1, 1),
    ),
    # Windows and grids larger than the tiles in which vectors of channels are brought together.
    Case(
        "few boxes on a wide map",
        boxes_on(0, (1.3, 1.1, 40.6, 19.2), (20.4, 2.7, 42.9, 7.8)),
        shape=(1, 37, 21, 43),
        size=(5, 7),
        samplings=(2,),
    ),
    Case(
        "many boxes on a wide map",
        boxes_on(
            1, *((x, y, x + 6.3, y + 5.8) for x in range(-2, 40, 6) for y in range(-2, 20, 5))
        ),
        shape=(2, 21, 21, 43),
        samplings=(2,),
    ),
    # Cells between samples that no bin reads, more samples than are padded on one axis, fewer on
    # the other.
    Case(
        "samples far apart",
        boxes_on(0, (0, 0, 12, 5), (-9, -7, 30, 28), (2, 1, 29, 60)),
        shape=(1, 3, 20, 31),
        size=(2, 3),
        samplings=(3, (3, 1), (1, 3), (9, 2)),
    ),
    # Samples on cells: the last bin has as many taps as are padded, and the room for one more; the
    # bin before it lies half outside the map, with fewer taps and less room.
    Case(
        "bins of unequal room",
        boxes_on(0, (-5, -5, 7, 7), (-5.5, -5.5, 6.5, 6.5)),
        size=(2, 2),
        samplings=(6,),
    ),
    Case("1 row", shape=(1, 2, 1, 9)),
    Case("1 column", shape=(1, 2, 8, 1)),
    Case("1 by 1 bin", size=(1, 1)),
    Case("1 row of bins", size=(1, 7)),
    Case("1 column of bins", size=(7, 1)),
    Case("more bins than cells", boxes_on(0, (1.3, 1.1, 5.6, 4.2)), size=(13, 17)),
    Case("ties", [*PLAIN, *boxes_on(0, (0, 0, 8, 7), (-4, -4, 12, 12))], pixels="ties"),
    Case("at most zero", [*PLAIN, *boxes_on(0, (-4, -4, 12, 12))], pixels="at most zero"),
    Case("constant", [*PLAIN, *boxes_on(0, (-4, -4, 12, 12))], pixels="constant"),
    Case("negative", [*PLAIN, *boxes_on(0, (-4, -4, 12, 12))], pixels="negative"),
    Case("some NaN pixels", [*PLAIN, *boxes_on(0, (1.5, 1.5, 3.5, 3.5))], pixels="some nan"),
    Case(
        "some NaN pixels, short boxes",
        boxes_on(0, *((x, y, x + 0.25, y + 0.5) for x in (0.5, 2, 4.3, 6) for y in (0.7, 3, 5.5))),
        pixels="some nan",
        samplings=(0, 2, 3),
    ),
    Case("some infinite pixels", [*PLAIN, *boxes_on(0, (1.5, 1.5, 3.5, 3.5))], pixels="some inf"),
    Case("NaN and infinite pixels", [*PLAIN, *boxes_on(0, (-4, -4, 9, 9))], pixels="nan and inf"),
    Case("all NaN", [*PLAIN, *boxes_on(0, (-4, -4, 9, 9))], pixels="all nan"),
    Case("all -inf", [*PLAIN, *boxes_on(0, (-4, -4, 9, 9))], pixels="lowest"),
    Case("identical boxes", [PLAIN[0]] * 60, samplings=(2,)),
    Case(
        "images out of order",
        [(2, 1, 1, 5, 6), (0, 2, 0, 8, 3), (2, 0, 0, 3, 3), (0, 1, 1, 2, 7), (2, 4, 4, 8, 7)],
        shape=(4, 2, 8, 9),
    ),
    *(
        Case(
            f"scale {name}",
            boxes_on(0, *np.array([(13, 11, 106, 80), (50, -9, 150, 70)]) * stretch),
            scale=scale,
        )
        for name, scale, stretch in (
            ("1/16", 1 / 16, 1.0),
            ("1/3", 1 / 3, 0.2),
            ("0.6", 0.6, 0.1),
            ("0", 0.0, 1.0),
        )
    ),
    # Bins whose edges float32 rounds to another cell than exact arithmetic would.
    Case(
        "bin edges that float32 moves",
        boxes_on(0, (0, 0, 56, 56), (0, 0, 61, 61)),
        shape=(1, 1, 64, 64),
        size=(14, 7),
        samplings=(1,),
    ),
    # Crops of the whole map whose last cell falls just outside it in float32.
    Case(
        "crops that float32 moves",
        boxes_on(0, (0, 0, 7, 3)),
        shape=(1, 2, 4, 8),
        size=(22, 14),
        samplings=(1,),
    ),
]
