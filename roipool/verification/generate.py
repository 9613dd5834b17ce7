"""Generates random calls over all arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from roipool._dtypes import INTEGERS
from roipool.systems import SYSTEMS, System
from roipool.systems.case import (
    STORAGES,
    WRITABLE,
    Array,
    Case,
    channel_group,
    dtypes,
    held,
    pooled_dtype,
)
from roipool.systems.volumes import MOST_PLANES

from .options import Random, drawn_options

# Samples that the oracle visits in a call: a typical budget, and the most.
USUAL_WORK, GREATEST_WORK = 40, 12_000
CHECKED_BY_ORACLE = 0.95  # fraction of the calls; the others are too large for the oracle
FAR = 1e30  # replaces infinity, so that estimates of work are finite

Option = TypeVar("Option")


class SizeLimits(NamedTuple):
    """Limits of a call: cells along an axis, boxes, and elements of the maps or pooled values."""

    side: int
    boxes: int
    numbers: int


TINY, SMALL, LARGE = (
    SizeLimits(12, 3, 1_500),
    SizeLimits(70, 40, 30_000),
    SizeLimits(250, 150, 80_000),
)


class Geometry(NamedTuple):
    """Shape of the maps (N, C, H, W), number of bins, and boxes (image, x1, y1, x2, y2)."""

    shape: tuple[int, int, int, int]
    size: tuple[int, int]
    table: Array


def draw(
    seed: int,
    number: int,
    operations: Sequence[str] = tuple(SYSTEMS),
    *,
    tiny: bool = False,
    dtype: str | None = None,
) -> Case:
    """Return call `number` of a seed; the same call every time.

    Parameters
    ----------
    seed, number : int
        Not negative.
    operations : sequence of str
        Keys of `SYSTEMS` to draw from; the core's are drawn three times as often.
    tiny : bool
        Whether to draw only tiny maps with few boxes, which take much less time.
    dtype : str, optional
        Type of the maps; by default drawn from the types that the operation takes.
    """
    rng = np.random.default_rng((seed, number))
    return draw_from(rng, operations, tiny=tiny, dtype=dtype)


def draw_from(
    rng: Random, operations: Sequence[str], *, tiny: bool, dtype: str | None = None
) -> Case:
    """Return the call that a random generator, or an object like one, decides on."""
    name = _pick(rng, [name for name in operations for _ in range(1 if "." in name else 3)])
    operation = SYSTEMS[name]
    dtype = dtype or _pick(rng, [name for name in operation.dtypes if name in dtypes()])
    real = np.float64 if dtype == "float64" else np.float32
    large = not tiny and rng.random() > CHECKED_BY_ORACLE
    limits = TINY if tiny else LARGE if large else SMALL
    geometry = None
    while geometry is None:
        options = drawn_options(rng, operation)
        drawn = _geometry(rng, operation, options, real, limits)
        geometry = (
            drawn if large else _with_fewer_boxes(rng, drawn, work_of(operation, options, drawn))
        )
    groups = operation.groups_of(options, geometry.size)
    form = _pick(rng, operation.forms)
    table = geometry.table
    if form == "one array per image":
        table = table[np.argsort(table[:, 0], kind="stable")]
    return Case(
        name,
        _numbers(rng, geometry.shape, dtype, pixels=operation.masks != "pasted"),
        _numbers(
            rng,
            (len(table), geometry.shape[1] // groups, *geometry.size),
            pooled_dtype(dtype),
            pixels=False,
        ),
        table,
        dtype,
        options,
        _pick(rng, operation.layouts),
        form,
        storage=_pick(rng, list(STORAGES)) if rng.random() < 0.3 else "plain",
        out=_pick(rng, WRITABLE) if rng.random() < 0.3 else "new",
        threads=int(rng.integers(2, 6)) if rng.random() < 0.1 else 1,
        large=large,
        variation=int(rng.integers(10**6)),
    )


def _pick(rng: Random, options: Sequence[Option]) -> Option:
    return options[int(rng.integers(len(options)))]


def _log_uniform(rng: Random, least: int, most: int) -> int:
    """Return an integer from `least` to `most`, uniform on a logarithmic scale."""
    return int(math.exp(rng.uniform(math.log(least), math.log(most + 1))))


def _geometry(
    rng: Random,
    operation: System,
    options: Mapping[str, Any],
    real: type[np.floating[Any]],
    limits: SizeLimits,
) -> Geometry:
    images, channels = _log_uniform(rng, 1, 3), _channels(rng, limits is LARGE)
    height, width = (_extent(rng, limits.side) for _ in range(2))
    boxes = _log_uniform(rng, 1, limits.boxes)
    size = _bins(rng)
    images = max(1, min(images, limits.numbers // (height * width)))
    groups, group = operation.groups_of(options, size), channel_group(options)
    channels = max(1, min(channels, limits.numbers // (images * groups * height * width)))
    channels = max(1, channels // group) * group
    boxes = max(1, min(boxes, limits.numbers // (channels * math.prod(size))))
    if rng.random() < 0.03:  # one size is 0
        sizes = [images, channels, height, width, boxes]
        which = rng.integers(5)
        kept = () if operation.takes_no_rows else (2, 3) if operation.masks else (2,)
        sizes[which] = sizes[which] if which in kept else 0
        images, channels, height, width, boxes = sizes
    if operation.masks:
        channels = 1
    if operation.masks == "pasted":  # each box has a mask
        images = boxes = min(boxes if images else 0, limits.numbers // max(height * width, 1))
    table = np.empty((boxes if images else 0, 5))
    table[:, 0] = rng.integers(0, max(images, 1), len(table))
    scale = float(options.get("spatial_scale", 1.0))
    rows, columns = size if operation.masks == "pasted" else (height, width)
    for row in table:
        row[[1, 3]] = _side(rng, columns, scale, real, operation.finite)
        row[[2, 4]] = _side(rng, rows, scale, real, operation.finite)
    if len(table) and rng.random() < 0.05:
        table[:] = table[0]
    if operation.masks == "pasted":
        table[:, 0] = np.arange(len(table))
    return Geometry((images, channels * groups, height, width), size, table)


def _extent(rng: Random, most: int) -> int:
    return int(rng.integers(1, most + 1)) if rng.random() < 0.5 else _log_uniform(rng, 1, most)


def _bins(rng: Random) -> tuple[int, int]:
    """Return rows and columns of bins, often few along one axis and many along the other."""
    rows, columns = int(rng.integers(1, 18)), _log_uniform(rng, 1, 17)
    if rng.random() < 0.7:
        columns = int(rng.integers(1, 3))
    return (columns, rows) if rng.random() < 0.7 else (rows, columns)


def _channels(rng: Random, large: bool) -> int:
    """Return few channels, any number of channels, or a multiple of the vector width."""
    kind = rng.integers(4)
    if kind == 0:
        return 16 * _pick(rng, (1, 2, 4, 8, 16, 32) if large else (1, 2))
    if kind == 1:
        return int(rng.integers(1, 520 if large else 71))
    return _log_uniform(rng, 1, 70 if large else 9)


def _side(
    rng: Random, size: int, scale: float, real: type[np.floating[Any]], finite: bool
) -> tuple[float, float]:
    """Return both ends of a box on one axis, in image pixels."""
    first, last = _ends(rng, size)
    snap = rng.integers(6)
    if snap < 3:  # on cells, halves and quarters
        first, last = (round(end * 2**snap) / 2**snap for end in (first, last))
    if scale > 0:
        first, last = first / scale, last / scale
    if rng.random() < 0.12:
        first, last = (_neighbour(rng, end, real) for end in (first, last))
    if not finite and rng.random() < 0.01:
        bad = _pick(rng, (math.nan, math.inf, -math.inf))
        first, last = (bad, last) if rng.random() < 0.5 else (first, bad)
    return first, last


_KINDS = (
    ["inside"] * 5
    + ["anywhere"] * 7
    + ["around"] * 5
    + ["the map", "the map", "reversed", "reversed", "empty", "before", "behind"]
)


def _ends(rng: Random, size: int) -> tuple[float, float]:
    """Return both ends of a box on one axis, in cells."""
    if rng.random() < 0.01:
        reach = 10 ** rng.uniform(2, 11)
        return rng.uniform(-reach, reach), rng.uniform(-reach, reach)
    low = rng.uniform(-2, size + 1)
    length = rng.uniform(0, 2 * size) if rng.random() < 0.5 else rng.uniform(0, 4)
    match _pick(rng, _KINDS):
        case "inside":
            inside = rng.uniform(0, size, 2)
            return float(inside.min()), float(inside.max())
        case "around":
            return rng.uniform(-size - 3, 1), rng.uniform(size - 1, 2 * size + 3)
        case "the map":  # its edges, or the centres of its first and last cells
            return 0, size - int(rng.integers(2))
        case "reversed":
            return low + length, low
        case "empty":
            return low, low
        case "before":
            return -length - rng.uniform(0, 4), -rng.uniform(0, 4)
        case "behind":
            return size + rng.uniform(-1, 4), size + 4 + length
        case _:
            return low, low + length


def _neighbour(rng: Random, value: float, real: type[np.floating[Any]]) -> float:
    """Round a coordinate to its computing type, or to the next number up or down."""
    toward = _pick(rng, (-math.inf, value, math.inf))
    return float(np.nextafter(real(value), real(toward)))


def _numbers(rng: Random, shape: tuple[int, ...], dtype: str, *, pixels: bool) -> Array:
    """Return float64 numbers that `dtype` represents exactly; pixels may be tied or not finite."""
    numbers = rng.integers(-128, 128, shape) / 16
    kind = rng.integers(12)
    if kind < 4:
        numbers = rng.standard_normal(shape)
    elif kind == 4:
        numbers = np.round(numbers / 8)
    elif kind == 5:
        numbers = np.minimum(np.round(numbers / 8), 0)
    elif kind == 6:
        numbers = np.full(shape, 1.5)
    if pixels and rng.random() < 0.15:
        low, high = _pick(rng, ((math.nan, math.nan), (math.inf, -math.inf), (math.nan, math.inf)))
        places, share = rng.random(shape), _pick(rng, (0.02, 0.2, 0.5))
        numbers[places < share / 2], numbers[places > 1 - share / 2] = low, high
    if dtype in INTEGERS:  # most of the numbers above are from -8 to 8
        limits = np.iinfo(dtype)
        numbers = limits.min + (numbers + 8) * (limits.max - limits.min + 1) / 16
    return held(numbers, dtype)


def _with_fewer_boxes(rng: Random, geometry: Geometry, work: Array) -> Geometry | None:
    """Keep the first boxes, as many as fit the oracle's budget; return None if none fits.

    The budget is drawn, so that calls of all sizes occur, larger ones less often.
    """
    budget = min(USUAL_WORK / rng.random() ** 0.7, GREATEST_WORK)
    if not len(work):
        return geometry
    count = int(np.searchsorted(np.cumsum(work), budget, side="right"))
    return geometry._replace(table=geometry.table[:count]) if count else None


def work_of(operation: System, options: Mapping[str, Any], geometry: Geometry) -> Array:
    """Estimate the number of samples or cells that the oracle visits for each box."""
    ratios = options.get("sampling_ratio", 0)
    ratios = (ratios, ratios) if isinstance(ratios, int) else ratios
    scale = options.get("spatial_scale", 1.0)
    total = np.ones(len(geometry.table))
    for axis, (low, high) in enumerate(((2, 4), (1, 3))):
        size, bins, ratio = geometry.shape[2 + axis], geometry.size[axis], ratios[axis]
        with np.errstate(all="ignore"):
            ends = np.nan_to_num(geometry.table[:, [low, high]] * scale, posinf=FAR, neginf=-FAR)
            inside = 1 + np.ptp(np.clip(ends, -1, size), axis=1)
            length = 1 + np.ptp(ends, axis=1)
        if operation.samples == "one":
            total *= bins
        elif operation.samples == "points":  # the oracle also visits samples outside the map
            total *= bins * ratio if ratio > 0 else bins + length
        elif operation.samples == "grid" and ratio > 0:
            total *= bins + bins * ratio * inside / length
        else:
            total *= inside + bins
    if operation.is_volume:
        total *= max(MOST_PLANES, ratios[1])  # samples along depth
    return 8 * total if operation.samples == "area" else total  # exact fractions are slow
