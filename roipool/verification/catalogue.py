"""Edge cases for every operation: an entry describes geometry and yields calls of operations.

Pixels and gradients are multiples of 1/16 with at most 8 significant bits. float16, bfloat16,
float32 and float64 represent them exactly, so one run of the oracle serves all four types.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roipool.systems import SYSTEMS, System
from roipool.systems.case import Array, Case, channel_group

from .generate import Geometry, work_of
from .options import drawn_options

Row = Sequence[float]

nan, inf = float("nan"), float("inf")
MAX_WORK = 30_000  # most samples of rotated boxes that the oracle visits in a call


@dataclass(frozen=True, eq=False)
class Entry:
    """Maps, boxes and options; one call for each pair of `samplings` and `alignments`.

    A box is image, x1, y1, x2, y2 or, in entries for rotated operations only, image, centre x,
    centre y, width, height, angle; there `options` give the angle's unit and direction.
    """

    name: str
    rois: Sequence[Row] = ((0, 1.3, 1.1, 7.6, 6.2), (0, 0.4, 2.7, 4.9, 7.8))
    shape: tuple[int, int, int, int] = (1, 3, 8, 9)
    size: tuple[int, int] = (2, 3)
    scale: float = 1.0
    pixels: str = "random"
    samplings: Sequence[int | tuple[int, int]] = (0, 2)
    alignments: Sequence[bool] = (True, False)
    options: Mapping[str, Any] | None = None

    @property
    def finite(self) -> bool:
        """Whether all pixels are finite."""
        return self.pixels in ("random", "ties", "at most zero", "constant", "negative")

    @property
    def is_rotated(self) -> bool:
        """Whether boxes have an angle; such entries are for rotated operations only."""
        return self.options is not None

    def __str__(self) -> str:
        return self.name

    def cases(
        self,
        operation: str,
        fixed: Mapping[str, Any] | None = None,
        most_work: float = MAX_WORK,
    ) -> Iterator[tuple[str, Case]]:
        """Yield names and calls of a system: one for each sampling and alignment that it has.

        Options that the entry does not set are drawn at random, seeded by the call's name. Options
        in `fixed` are set by the caller, and their variations are skipped. Calls for rotated boxes
        are skipped if the oracle would visit more than `most_work` samples.
        """
        row, seen = SYSTEMS[operation], set()
        if self.is_rotated and row.samples != "points":
            return
        gradient, table = self.gradient(), self.table()
        features = functools.cache(self.features)
        for sampling, aligned in itertools.product(self.samplings, self.alignments):
            has_ratio = "sampling_ratio" in row.options
            if isinstance(sampling, tuple) and has_ratio and not row.pairs:
                continue
            own = self._own_options(row, sampling, aligned)
            key = repr({**own, **(fixed or {})})
            if key in seen:
                continue
            seen.add(key)
            name = f"{self.name}, sampling {sampling}, {'aligned' if aligned else 'not aligned'}"
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            drawn = drawn_options(rng, row)
            options = {**drawn, **own}
            maps = features(row.groups_of(options, self.size))
            # As many groups of channels as the entry has channels, those of a group alike.
            group = channel_group(options)
            case = Case(
                operation,
                maps.repeat(group, axis=1),
                gradient.repeat(group, axis=1),
                table,
                options=options,
                layout=row.layouts[0],
            )
            if row.finite and not has_finite_boxes(row, case):
                continue
            if row.samples != "points" or work_of_case(case) <= most_work:
                settings = [
                    f"{option}={value}"
                    for option, value in own.items()
                    if option != "spatial_scale" and option not in (fixed or {})
                ]
                yield ", ".join([self.name, *settings]), case

    def _own_options(
        self, row: System, sampling: int | tuple[int, int], aligned: bool
    ) -> dict[str, Any]:
        mode = "half_pixel" if aligned else "output_half_pixel"
        known = {
            "spatial_scale": self.scale,
            "scale_ratio": 1.0,
            "sampling_ratio": sampling,
            "aligned": aligned,
            "coordinate_transformation_mode": mode,
            "aligned_mode": "half_pixel_for_nn" if aligned else "asymmetric",
            **(self.options or {}),
        }
        return {name: value for name, value in known.items() if name in row.options}

    def numbers(self, shape: Sequence[int], what: str) -> Array:
        """Return random numbers, seeded by the entry's name and `what`."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name} {what}".encode()))
        return rng.integers(-128, 128, shape) / 16

    def features(self, groups: int = 1) -> Array:
        """Return maps as float64 (N, C, H, W), with so many times as many channels."""
        images, channels, *size = self.shape
        shape = (images, channels * groups, *size)
        maps = self.numbers(shape, "pixels")
        places = np.random.default_rng(zlib.crc32(self.name.encode())).random(shape)
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
        """Return the boxes as an array."""
        return np.array(self.rois, np.float64).reshape(-1, 6 if self.is_rotated else 5)


def large_entry(rng: np.random.Generator, threads: int = 1) -> Entry:
    """Return an entry with work for `threads` threads, at least 3: 16384 pooled values each."""
    count = 37 * max(threads, 3)
    rois = np.column_stack([rng.integers(0, 2, count), rng.uniform(-5, 55, (count, 4))])
    return Entry(
        "large", rois.tolist(), (2, 37, 40, 50), (3, 4), samplings=(0,), alignments=(True,)
    )


def tall_entry(rng: np.random.Generator) -> Entry:
    """Return an entry with one image, of one channel: its rows are what threads can share."""
    rois = np.column_stack([np.zeros(60), rng.uniform(-5, 75, (60, 4))])
    return Entry("tall", rois.tolist(), (1, 1, 70, 30), (3, 4), samplings=(0,), alignments=(True,))


def has_finite_boxes(row: System, case: Case) -> bool:
    """Return whether boxes are finite in the type in which a system computes coordinates."""
    with np.errstate(over="ignore"):
        return all(
            bool(np.isfinite(np.asarray(value).astype(case.real)).all())
            for value in row.boxes(case).values()
        )


def work_of_case(case: Case) -> float:
    """Estimate how many samples, or cells, the oracle visits for a call."""
    geometry = Geometry(np.shape(case.maps), case.size, case.corners)
    return float(np.sum(work_of(SYSTEMS[case.operation], case.options, geometry)))


def cases(operation: str, fixed: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Case]]:
    """Yield names and calls of a system for all entries; see `Entry.cases`."""
    for entry in ENTRIES:
        yield from entry.cases(operation, fixed)


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
QUARTERS = np.random.default_rng(5).integers(-12, 48, (60, 2, 2)) / 4
EQUAL = boxes_on(0, *np.sort(QUARTERS, axis=1).reshape(60, 4).tolist())
HUGE = boxes_on(0, *((-size, -size, size, size) for size in (1e6, 1e8, 1e10)), (2, 2, 1e6, 1e6))
LONG = boxes_on(
    0,
    *((1.5, -size, 6.25, size) for size in (1e6, 1e10)),
    (-1e10, 1, 5, 6),
    (1, 1, 1e10, 6),
    (3, 2, 9, 1e6),
    (-3.3e6, 1, 4.1e6, 6),
)

ENTRIES = [
    Entry("inside", samplings=(0, 1, 2, 3, (2, 3), (0, 2))),
    Entry("NaN and infinite boxes", NOT_FINITE),
    Entry(
        "reversed",
        boxes_on(0, (6.5, 1.2, 2.5, 5.1), (1.2, 6.5, 5.1, 2.5), (6.3, 6.1, 2.2, 1.4), (7, 7, 1, 1)),
    ),
    Entry(
        "no extent",
        boxes_on(0, (2, 2, 2, 2), (2.5, 2.5, 2.5, 2.5), (3.2, 1.1, 3.2, 6.6), (1.1, 4, 6.6, 4)),
    ),
    Entry(
        "outside",
        boxes_on(
            0, (-6, -6, -2, -2), (12, 12, 16, 16), (-6, 2, -3, 5), (2, 11, 5, 15), (2, -9, 5, -4)
        ),
    ),
    Entry(
        "half outside",
        boxes_on(0, (-3.3, -2.2, 4.1, 5), (4, 3, 13.5, 12.5), (-4, 2, 14, 6), (2, -5, 6, 15)),
    ),
    Entry("around the map", boxes_on(0, (-4, -4, 13, 12), (-20.5, -30, 40, 50))),
    Entry(
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
    Entry("on bin edges", boxes_on(0, (0, 0, 5, 3), (1, 2, 6, 5), (2, 1, 7, 6)), size=(2, 3)),
    # One sample, in the middle of the box: at -1, at H and W, and just off them.
    Entry(
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
    # So many samples that those outside the map are skipped; their weights are exact.
    Entry(
        "many samples in the margin",
        boxes_on(0, (-1.25, -1.5, 0.75, 0.5), (7.5, 6.5, 9.5, 8.5)),
        size=(1, 1),
        samplings=(32,),
    ),
    # In float32 half of the samples round to -1, or to H and W; the others stay just outside.
    Entry(
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
    Entry("whole map", boxes_on(0, (0, 0, 8, 7), (0, 0, 9, 8), (-0.5, -0.5, 8.5, 7.5))),
    Entry("one box per cell", boxes_on(0, (0, 0, 9, 8)), size=(8, 9), samplings=(1,)),
    Entry("huge", HUGE),
    Entry("huge, many bins", HUGE, size=(5, 7), samplings=(0,)),  # wide indices
    Entry("long", LONG),
    Entry(
        "beyond float32",
        boxes_on(0, (1, 1, 1e39, 5), (-1e39, 1, 5, 5), (1, 1, 5, 1e39)),
        samplings=(0, 2, 20),
    ),
    Entry(
        "tiny",
        boxes_on(0, *((2.3, 3.6, 2.3 + size, 3.6 + size) for size in (1e-3, 1e-7, 1e-20))),
        samplings=(0, 3),
    ),
    Entry("no boxes", []),
    Entry("no images", [], shape=(0, 3, 8, 9)),
    Entry("no channels", shape=(1, 0, 8, 9)),
    Entry("no rows", shape=(1, 3, 0, 9)),
    Entry("no columns", shape=(1, 3, 8, 0)),
    Entry("no cells", shape=(1, 3, 0, 0)),
    *(
        Entry(f"{channels} channels", shape=(2, channels, 6, 7), rois=[*PLAIN, (1, -1, 1, 5, 7.2)])
        for channels in (1, 4, 5, 16, 17, 33)
    ),
    Entry(
        "1 by 1 map",
        boxes_on(0, (0, 0, 1, 1), (-0.5, -0.5, 0.5, 0.5), (-2, -2, 3, 3)),
        shape=(1, 2, 1, 1),
    ),
    # Windows and grids larger than the tiles in which vectors of channels are gathered.
    Entry(
        "few boxes on a wide map",
        boxes_on(0, (1.3, 1.1, 40.6, 19.2), (20.4, 2.7, 42.9, 7.8)),
        shape=(1, 37, 21, 43),
        size=(5, 7),
        samplings=(2,),
    ),
    Entry(
        "many boxes on a wide map",
        boxes_on(
            1, *((x, y, x + 6.3, y + 5.8) for x in range(-2, 40, 6) for y in range(-2, 20, 5))
        ),
        shape=(2, 21, 21, 43),
        samplings=(2,),
    ),
    # Cells between samples that no bin reads; more taps than the padding on one axis, fewer on
    # the other.
    Entry(
        "samples far apart",
        boxes_on(
            0,
            *((0, 0, 12, 5), (-9, -7, 30, 28), (2, 1, 29, 60)),
            # With one sample per bin, some samples lie on a cell, which is padded.
            *((x, 0.3, x + 13.5, 19.7) for x in (0.75, 1.25)),
        ),
        shape=(1, 3, 20, 31),
        size=(2, 3),
        samplings=(3, (3, 1), (1, 3), (9, 2)),
    ),
    # Samples on cells: the last bin has exactly the padded number of taps, and room for one more.
    # The bin before it lies half outside the map, with fewer taps and less room.
    Entry(
        "bins of unequal room",
        boxes_on(0, (-5, -5, 7, 7), (-5.5, -5.5, 6.5, 6.5)),
        size=(2, 2),
        samplings=(6,),
    ),
    Entry("1 row", shape=(1, 2, 1, 9)),
    Entry("1 column", shape=(1, 2, 8, 1)),
    Entry("1 by 1 bin", size=(1, 1)),
    Entry("1 row of bins", size=(1, 7)),
    Entry("1 column of bins", size=(7, 1)),
    Entry("more bins than cells", boxes_on(0, (1.3, 1.1, 5.6, 4.2)), size=(13, 17)),
    Entry("ties", [*PLAIN, *boxes_on(0, (0, 0, 8, 7), (-4, -4, 12, 12))], pixels="ties"),
    Entry("at most zero", [*PLAIN, *boxes_on(0, (-4, -4, 12, 12))], pixels="at most zero"),
    Entry("constant", [*PLAIN, *boxes_on(0, (-4, -4, 12, 12))], pixels="constant"),
    # Nothing is rounded, so ties are ties in every implementation; samples outside are 0.
    *(
        Entry(
            f"equal samples, {pixels}",
            EQUAL,
            shape=(1, 6, 8, 9),
            size=(2, 2),
            pixels=pixels,
            samplings=(2,),
        )
        for pixels in ("ties", "at most zero", "constant")
    ),
    Entry("negative", [*PLAIN, *boxes_on(0, (-4, -4, 12, 12))], pixels="negative"),
    Entry("some NaN pixels", [*PLAIN, *boxes_on(0, (1.5, 1.5, 3.5, 3.5))], pixels="some nan"),
    Entry(
        "some NaN pixels, short boxes",
        boxes_on(0, *((x, y, x + 0.25, y + 0.5) for x in (0.5, 2, 4.3, 6) for y in (0.7, 3, 5.5))),
        pixels="some nan",
        samplings=(0, 2, 3),
    ),
    Entry("some infinite pixels", [*PLAIN, *boxes_on(0, (1.5, 1.5, 3.5, 3.5))], pixels="some inf"),
    Entry("NaN and infinite pixels", [*PLAIN, *boxes_on(0, (-4, -4, 9, 9))], pixels="nan and inf"),
    Entry("all NaN", [*PLAIN, *boxes_on(0, (-4, -4, 9, 9))], pixels="all nan"),
    Entry("all -inf", [*PLAIN, *boxes_on(0, (-4, -4, 9, 9))], pixels="lowest"),
    Entry("identical boxes", [PLAIN[0]] * 60, samplings=(2,)),
    Entry(
        "images out of order",
        [(2, 1, 1, 5, 6), (0, 2, 0, 8, 3), (2, 0, 0, 3, 3), (0, 1, 1, 2, 7), (2, 4, 4, 8, 7)],
        shape=(4, 2, 8, 9),
    ),
    *(
        Entry(
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
    Entry(
        "bin edges that float32 moves",
        boxes_on(0, (0, 0, 56, 56), (0, 0, 61, 61)),
        shape=(1, 1, 64, 64),
        size=(14, 7),
        samplings=(1,),
    ),
    # Crops of the whole map whose last cell falls just outside it in float32.
    Entry(
        "crops that float32 moves",
        boxes_on(0, (0, 0, 7, 3)),
        shape=(1, 2, 4, 8),
        size=(22, 14),
        samplings=(1,),
    ),
]


# ---- Boxes with an angle


def _rotated(
    name: str,
    rois: Sequence[Row],
    shape: tuple[int, int, int, int] = (2, 3, 8, 9),
    samplings: Sequence[int | tuple[int, int]] = (0,),
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: str = "radians",
    **more: Any,
) -> Entry:
    options = {"clockwise": clockwise, "angle_unit": angle_unit}
    return Entry(
        f"rotated, {name}",
        rois,
        shape,
        samplings=samplings,
        alignments=(aligned,),
        options=options,
        **more,
    )


ROTATED = [(0, 4.2, 3.7, 5.1, 2.9, 0.3), (1, 2.9, 5.4, 3.3, 6.1, -1.1), (0, 5, 4, 6, 7, 2.5)]
EIGHTHS = [(0, 4.5, 4.0, 4.0, 3.0, turn * math.pi / 4) for turn in range(-4, 9)]
ROTATED_NOT_FINITE = [
    [bad if i == column else value for i, value in enumerate(ROTATED[0])]
    for bad in (nan, inf, -inf, 1e39)
    for column in range(1, 6)
] + ROTATED
ENTRIES += [
    _rotated("adaptive", ROTATED),
    _rotated("one sample", ROTATED, samplings=(1,)),
    _rotated("two samples", ROTATED, samplings=(2,)),
    _rotated("uneven samples", ROTATED, samplings=((3, 1),)),
    _rotated("many samples", ROTATED[:2], samplings=(20,)),
    _rotated("many samples in the margin", [(0, 4, -0.25, 2, 1.5, 0), (1, 9.25, 4, 1.5, 2, 0)],
             size=(1, 1), samplings=(32,)),
    _rotated("many samples within a rounding of the margin",
             [(0, 4.5, 8.5, 1e-7, 1e-7, 0.7), (0, -0.5, 4.5, 1e-8, 1e-8, 0.7)],
             size=(1, 1), samplings=(32,)),
    _rotated("clockwise", ROTATED, clockwise=True),
    _rotated("not aligned", ROTATED, aligned=False),
    _rotated("held at one cell", [(0, 4, 4, 0.3, 5, 0.7), (1, 4, 4, 0, 0, 1)], samplings=(2,),
             aligned=False),
    _rotated("degrees", [(0, 4.2, 3.7, 5.1, 2.9, 20), (1, 3, 5, 3, 6, -290)],
             angle_unit="degrees"),
    _rotated("eighths of a turn", EIGHTHS, samplings=(2,)),
    _rotated("many turns", [(0, 4.2, 3.7, 5.1, 2.9, turns * 2 * math.pi + 0.3)
                                for turns in (-1000, -3, 7, 100000)]),
    _rotated("scale", [(0, 67.2, 59.2, 81.6, 46.4, 0.3), (1, 46, 86, 53, 98, -1)], scale=1 / 16),
    _rotated("scale 0", ROTATED, scale=0.0),
    _rotated("half outside", [(0, 0, 0, 9, 6, 0.5), (1, 9, 8, 12, 3, 2), (0, 4, -1, 5, 5, 1)]),
    _rotated("outside", [(0, -9, 4, 5, 5, 0.5), (1, 30, 30, 9, 9, 2), (0, 4, 99, 7, 9, 3)]),
    _rotated("around the map", [(0, 4, 4, 40, 50, 0.4), (1, 9, 2, 60, 25, 2.2)]),
    _rotated("many times the map", [(0, 20, -30, 90, 70, 0.4)], size=(1, 2)),
    _rotated("samples far apart", [(0, 4, 4, 40, 50, 0.4), (1, 9, 2, 60, 25, 2.2)], samplings=(3,)),
    _rotated("no extent", [(0, 4, 4, 0, 0, 1), (1, 4.5, 3.5, 0, 5, 1)], samplings=(2,)),
    _rotated("no extent, adaptive", [(0, 4, 4, 0, 0, 1), (1, 4.5, 3.5, 0, 5, 1)]),
    _rotated("negative sides", [(0, 4, 4, -3, 5, 1), (1, 4.5, 3.5, -2, -5, 1)], samplings=(2,)),
    _rotated("negative sides, adaptive", [(0, 4, 4, -3, 5, 1), (1, 4.5, 3.5, -2, -5, 1)]),
    _rotated("not finite", ROTATED_NOT_FINITE, samplings=(2,)),
    _rotated("far", [(0, 2e9, 4, 5, 5, 1), (0, 4, -2e9, 4e9, 4e9, 0), (0, 4, 4, 5, 5, 2e9),
                         *ROTATED]),
    _rotated("one cell", [(0, 0.5, 0.5, 1, 1, 0.6), (0, 0, 0, 3, 3, 1)], shape=(1, 2, 1, 1)),
    _rotated("one row", ROTATED, shape=(2, 3, 1, 9)),
    _rotated("one column", ROTATED, shape=(2, 3, 8, 1)),
    _rotated("more bins than cells", ROTATED, size=(11, 13)),
    _rotated("one bin", ROTATED, size=(1, 1)),
    _rotated("17 channels", ROTATED, shape=(2, 17, 6, 7)),
    _rotated("33 channels", ROTATED, shape=(2, 33, 6, 7)),
    _rotated("many boxes", [(k % 2, k % 9, k % 7, 3 + k % 4, 2 + k % 5, k) for k in range(60)]),
    _rotated("no boxes", []),
    _rotated("no images", [], shape=(0, 3, 8, 9)),
    _rotated("no channels", ROTATED, shape=(2, 0, 8, 9)),
    _rotated("no rows", ROTATED, shape=(2, 3, 0, 9)),
    _rotated("no columns", ROTATED, shape=(2, 3, 8, 0)),
]  # fmt: skip
