"""Compares the results of a call with the oracle's.

The tolerance of averages and gradients is a number of roundings of the sum of their absolute terms,
which the oracle computes from absolute values. Maxima over cells, copied values and every argmax
must agree bit for bit.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool import reference
from roipool.systems import SYSTEMS, Oracle, Results, System, oracle_of
from roipool.systems.case import Array, Case, dtypes
from roipool.systems.oracles import LOWEST_FLOAT32
from roipool.verification.tolerance import Comparison, compare

from .call import run

Slack: TypeAlias = Callable[[str, Array], Array | float]
# Number of calls whose oracle answers are cached: calls that differ only in type, layout,
# instruction set or device share an answer.
CACHED_ANSWERS = 64
GIANT = 1e6  # cells
SLOPES = ("box_gradient", "offset_gradient")  # sums over all channels


def none(result: str, expected: Array) -> float:
    """Allow no additional error."""
    return 0.0


def bin_value_of(operation: str) -> str:
    """Return the kind of a system's pooled values: "average", "cell", "sample" or others."""
    return oracle_of(operation).operation.bin_value


def ask(
    case: Case, oracle: Oracle | None = None, operation: System | None = None, **more: Any
) -> Results:
    """Return the oracle's results for a call, before `Oracle.finish`.

    Parameters
    ----------
    operation : System, optional
        The oracle's functions to call; by default all of them.
    **more
        Arguments that replace the case's, such as `argmax`.
    """
    oracle = oracle or oracle_of(case.operation)
    return _run(_plain(case, oracle), case.real, operation or oracle.operation, **more)


def _plain(case: Case, oracle: Oracle) -> Case:
    """Return the case as the oracle's functions take it."""
    return replace(
        oracle.prepare(case),
        dtype="float64",
        layout="NCHW",
        form="table",
        storage="plain",
        out="new",
        threads=1,
        large=False,
        variation=0,
    )


def _run(plain: Case, real: type[np.floating[Any]], operation: System, **more: Any) -> Results:
    more = {"coordinate_dtype": operation.fixed.get("coordinate_dtype", real), **more}
    with np.errstate(all="ignore"):
        return run(plain, reference, operation, **more)


def against_oracle(
    case: Case,
    got: Results,
    oracle: Oracle | None = None,
    *,
    argmax: Array | None = None,
    slack: Slack = none,
) -> Iterator[tuple[str, Comparison]]:
    """Compare a call's results with the oracle's.

    Parameters
    ----------
    argmax : ndarray, optional
        The argmax from which the gradient of a maximum was computed; by default the one in `got`.
    slack : function
        Additional error allowed, from the name of a result and its expected values.

    Yields
    ------
    (str, Comparison)
        The name of each result and its comparison.
    """
    if oracle_of(case.operation).cannot_answer(case):
        return
    expected, terms = _expected(case, got, oracle, got.get("argmax") if argmax is None else argmax)
    if not case.options.get("exact_gradient", True):
        for name in ("gradient", "offset_gradient"):  # the library's own, which is not exact
            expected.pop(name, None)
    bin_value = bin_value_of(case.operation)
    argmax_names = [name for name in expected if name.startswith("argmax") and name in got]
    for name in argmax_names:
        if name == "argmax" and bin_value == "sample":
            yield name, _compare_samples(case, got[name], expected, terms)
        elif SYSTEMS[case.operation].samples == "grid" or "_" in name:
            yield f"{name} == -1", _compare_missing(got[name], expected[name])
        else:
            yield name, compare(got[name].astype(np.float64), expected[name], 0.0, 0)
    if bin_value == "average" and SYSTEMS[case.operation].samples != "one":
        terms["pooled"] = terms["pooled"] * (length_of_sums(case) / 8)[:, None, None, None]
    if "gradient" in terms:
        terms["gradient"] = terms["gradient"] * (length_of_gradient_sums(case) / 8)
    if "box_gradient" in expected and "box_gradient" in got:
        # A slope between infinite cells is NaN, and sums of it depend on which taps are merged.
        nothing = np.isnan(expected["box_gradient"])
        if SYSTEMS[case.operation].samples in ("points", "filter"):
            nothing |= _decided_by_rounding(case, got["box_gradient"], expected["box_gradient"])
        expected["box_gradient"] = np.where(nothing, got["box_gradient"], expected["box_gradient"])
    if "offset_gradient" in expected and "offset_gradient" in got:
        # An infinite cell is added with the slopes by both ends, which may differ in sign.
        own, others = got["offset_gradient"], expected["offset_gradient"]
        nothing = np.isnan(others) | np.isinf(others) & ~np.isfinite(own)
        expected["offset_gradient"] = np.where(nothing, own, others)
    for name in set(expected) & set(got) - set(argmax_names):
        # The bound for boxes is generous, but a rotated box of few samples can reach it, and so can
        # moved bins, whose samples a GPU adds one by one.
        system = SYSTEMS[case.operation]
        by_boxes = 4 if system.samples == "points" or system.moves_bins else 1
        pooled = gradient = 6 if system.is_volume else 4  # two for each axis
        if bin_value == "cell":
            pooled, gradient = 0, 0 if _adds_sixteenths(case, terms) else 4
        ulps = {
            "pooled": pooled,
            "gradient": gradient,
            "box_gradient": by_boxes,
            "offset_gradient": by_boxes,
        }[name]
        allowed = slack(name, expected[name])
        yield name, compare(got[name], expected[name], terms[name], ulps, more=allowed)


def _decided_by_rounding(case: Case, got: Array, expected: Array) -> Array:
    """Return which gradients by boxes depend on whether a slope is 0 or a rounding off.

    They are those of boxes that read a cell that is not finite: a slope of exactly 0 skips it.
    """
    if np.isfinite(case.maps).all():
        return np.zeros(got.shape, bool)
    marked = replace(case, maps=(~np.isfinite(case.maps)).astype(np.float64))
    linear = oracle_of(case.operation).operation.only_forward
    pooled = ask(marked, operation=linear)["pooled"]
    reads = (pooled != 0).max(axis=(1, 2, 3), initial=False)[:, None]
    return reads & ~(np.isfinite(got) & np.isfinite(expected))


def length_of_sums(case: Case) -> Array:
    """Return how many rows and columns of cells a bin of each box may read, at least 8.

    For rotated boxes it is the number of cells. As many products are added one after the other,
    each with half a rounding: 4 roundings for the usual 8, and more for bins that average a large
    part of a map.
    """
    turned = SYSTEMS[case.operation].samples == "points"
    cells, scale = np.full(len(case.rois), float(turned)), case.options.get("spatial_scale", 1.0)
    for axis, (low, high) in enumerate(((2, 4), (1, 3))):
        size = case.maps.shape[2 + axis]
        with np.errstate(all="ignore"):
            ends = np.nan_to_num(case.corners[:, [low, high]] * scale)
            reach = np.maximum(np.ptp(np.clip(ends, -1e9, 1e9), axis=1), 1.0)
        if SYSTEMS[case.operation].samples == "filter":  # reaches from one neighbour to the other
            along = np.minimum(size, 2 * reach / max(case.size[axis] - 1, 1) + 2)
        else:
            along = np.minimum(size, reach / case.size[axis] + 2)
        cells = cells * along if turned else cells + along
    return np.maximum(cells, max(8, _samples_of_turned_bins(case)))


def _samples_of_turned_bins(case: Case) -> float:
    """Return the length of a sum whose error equals that of the weights of a bin planned by itself.

    Such are the bins of rotated boxes, and on a GPU those that are moved.

    The weights of a bin's samples are added up first, however few cells they reach. Roundings go
    up as often as down, so n of them err as much as 8 times sqrt(n / 8): 28 roundings for 20 x 20
    samples, where at most 10 were observed. For other boxes the length is 0.
    """
    options, system = case.options, SYSTEMS[case.operation]
    ratio = options.get("samples", options.get("sampling_ratio", 0))
    if system.samples != "points" and not system.moves_bins:
        return 0.0
    samples = ratio**2 if isinstance(ratio, int) else math.prod(ratio)
    return math.sqrt(8 * samples)


def length_of_gradient_sums(case: Case) -> float:
    """Return how many products a cell's gradient may add up one after the other, at least 8.

    They come from the rows and columns of a box's bins, and from the boxes.
    """
    system = SYSTEMS[case.operation]
    apart = system.samples == "points" or system.moves_bins  # any of these may reach the cell
    bins = math.prod(case.size) if apart else sum(case.size)
    return max(8, bins + len(case.rois), _samples_of_turned_bins(case))


def _expected(
    case: Case, got: Results, oracle: Oracle | None, argmax: Array | None
) -> tuple[Results, Results]:
    """Return the oracle's results and their sums of absolute terms."""
    default = oracle_of(case.operation)
    query = _Query(
        _plain(case, oracle or default),
        case.real,
        None if argmax is None else argmax.astype(np.int64),
        any(name in got for name in SLOPES),
    )
    if oracle is None:
        cached = _cached_answers(pickle.dumps(query))
        answers, terms = dict(cached[0]), dict(cached[1])
    else:
        answers, terms = _answers(query, oracle.operation)
    terms |= extrapolated_terms(case)
    if SYSTEMS[case.operation].masks == "pasted":  # a difference of cells is added to the first
        largest = np.abs(case.maps[case.images]).max(axis=(1, 2, 3), initial=0.0)
        terms["pooled"] = np.broadcast_to(largest[:, None, None, None], case.grad.shape)
    expected = (oracle or default).finish(case, answers)
    expected["pooled"] = _stored(expected["pooled"], dtypes()[case.pooled_dtype])
    if case.real is np.float64 and SYSTEMS[case.operation].samples == "points":
        terms["pooled"] = terms["pooled"] + _moved_by_a_sine(case, case.maps)[:, None, None, None]
        terms["gradient"] = terms["gradient"] + _moved_by_a_sine(case, case.grad).max(initial=0.0)
    return expected, terms


class _Query(NamedTuple):
    """Everything that the oracle's answers depend on."""

    case: Case
    real: type[np.floating[Any]]
    argmax: Array | None
    by_boxes: bool


@lru_cache(CACHED_ANSWERS)
def _cached_answers(pickled: bytes) -> tuple[Results, Results]:
    query: _Query = pickle.loads(pickled)
    return _answers(query, oracle_of(query.case.operation).operation)


def _answers(query: _Query, operation: System) -> tuple[Results, Results]:
    """Return answers and their sums of absolute terms, computed in one run of the oracle."""
    case, real, argmax, by_boxes = query
    twice = replace(case, maps=_with_absolute(case.maps), grad=_with_absolute(case.grad))
    more: dict[str, Any] = {}
    if argmax is not None and operation.backward:
        more["argmax"] = np.concatenate([argmax] * 2, axis=1)
    linear = operation._replace(box_gradient="", offset_gradient="")
    both = _run(twice, real, linear, **more)
    halves = {name: np.split(array, 2, axis=1) for name, array in both.items()}
    answers = {name: half[0] for name, half in halves.items()}
    terms = {name: half[1] for name, half in halves.items()}
    if by_boxes:
        answers |= _run(case, real, operation._replace(forward="", backward=""))
        if operation.box_gradient:
            terms["box_gradient"] = _terms_of_box_gradient(case)
        if operation.offset_gradient:
            parts = answers["offset_gradient"].shape[2:]
            terms["offset_gradient"] = _terms_of_offset_gradient(case, parts)
    return answers, terms


def extrapolated_terms(case: Case) -> Results:
    """Return bounds on sums of absolute terms where weights may be below 0; nothing elsewhere."""
    largest_sum = oracle_of(case.operation).largest_sum
    if largest_sum is None:
        return {}
    sums = largest_sum(case)[:, None, None, None] * np.abs(case.grad)
    largest = np.max(np.abs(case.maps)[np.isfinite(case.maps)], initial=0.0)
    per_channel = sums.sum(axis=(0, 2, 3)).max(initial=0.0)
    slopes = 2 * largest * sums.sum(axis=(1, 2, 3))
    return {
        "pooled": np.broadcast_to(
            largest * largest_sum(case)[:, None, None, None], case.grad.shape
        ).copy(),
        "gradient": np.full(case.maps.shape, per_channel),
        "box_gradient": np.stack([slopes] * 4, axis=1),
    }


def _moved_by_a_sine(case: Case, numbers: Array) -> Array:
    """Return, for each box, the terms to add for the last bit of a float64 sine or cosine.

    Platforms differ in that bit; float32 values are rounded from float64 and agree everywhere. A
    sample moves by one rounding for each cell between it and the centre; in giant boxes it may
    move to another cell.
    """
    largest = np.max(np.abs(numbers)[np.isfinite(numbers)], initial=0.0)
    reach = _reach(case)[:, 0]
    return 2.0 * largest * np.where(reach < GIANT, reach, 1.0)


def _reach(case: Case) -> Array:
    """Return, for each rotated box, the largest distance of a sample from its centre, in cells."""
    scale = np.abs(float(case.options["spatial_scale"]))
    with np.errstate(all="ignore"):
        sides = np.abs(case.corners[:, 3:] - case.corners[:, 1:3]) * scale
        return np.maximum(np.nan_to_num(sides), 1).sum(axis=1, keepdims=True) / 2


def _stored(pooled: Array, dtype: np.dtype[Any]) -> Array:
    """Round the lowest float32, which stands for an empty maximum, to the type of the maps."""
    with np.errstate(over="ignore"):
        return np.where(pooled == LOWEST_FLOAT32, np.float64(dtype.type(LOWEST_FLOAT32)), pooled)


def _with_absolute(numbers: Array) -> Array:
    """Append the absolute values as further channels, with 0 for numbers that are not finite."""
    absolute = np.nan_to_num(np.abs(numbers), nan=0.0, posinf=0.0)
    return np.concatenate([numbers, absolute], axis=1)


def _terms_of_box_gradient(case: Case) -> Array:
    """Return, for each box and coordinate, a bound on the sum of absolute terms."""
    upstream = np.abs(case.grad).sum(axis=(1, 2, 3))[:, None]
    sizes = np.abs(case.maps)[np.isfinite(case.maps)]
    slopes = 2 * upstream * np.max(sizes, initial=0.0)
    if SYSTEMS[case.operation].masks:
        return slopes * _cells_per_pixel(case)
    if SYSTEMS[case.operation].samples in ("one", "filter"):  # of crops
        return np.array([max(size - 1, 0) for size in case.maps.shape[2:]] * 2) * slopes
    scale = np.abs(float(case.options["spatial_scale"]))
    if SYSTEMS[case.operation].samples != "points":
        moved = 1 + 2 * np.abs(float(case.options.get("gamma", 0.0)))  # shares of a side
        ends = 6 if SYSTEMS[case.operation].is_volume else 4
        return moved * scale * np.tile(slopes, ends)
    unit = np.pi / 180 if case.options["angle_unit"] == "degrees" else 1.0
    with np.errstate(over="ignore"):  # the angle moves a sample by its distance from the centre
        return np.hstack([scale * np.tile(slopes, 4), unit * _reach(case) * slopes])


def _cells_per_pixel(case: Case) -> Array:
    """Return how fast a pixel moves on a mask, at most, with each end of its box."""
    sides = case.rois[:, 3:5] - case.rois[:, 1:3]
    with np.errstate(all="ignore"):
        cells = 2.0 * np.array(case.maps.shape[:1:-1]) / sides  # beyond an end, up to twice
    return np.tile(np.where((cells > 0) & np.isfinite(cells), cells, 0.0), 2)


def _terms_of_offset_gradient(case: Case, parts: Sequence[int]) -> Array:
    """Return, for the offset of each part and direction, a bound on the sum of absolute terms.

    A bin that is moved by a multiple of the side adds and subtracts as many slopes. The side of a
    rounded box may be longer by two pixels, and is at least a tenth of a cell.
    """
    upstream = np.zeros((len(case.grad), 1, *parts))
    for row, column in np.ndindex(*case.size):
        part = row * parts[0] // case.size[0], column * parts[1] // case.size[1]
        upstream[:, :, *part] += np.abs(case.grad[:, :, row, column]).sum(axis=1, keepdims=True)
    largest = np.max(np.abs(case.maps)[np.isfinite(case.maps)], initial=0.0)
    scale, gamma = (np.abs(float(case.options[name])) for name in ("spatial_scale", "gamma"))
    more_pixels, more_cells = (2, 0.1) if "samples" in case.options else (0, 0)
    with np.errstate(all="ignore"):
        pixels = np.nan_to_num(np.abs(case.rois[:, 3:5] - case.rois[:, 1:3]), posinf=0.0)
        sides = (pixels + more_pixels) * scale + more_cells
        return 2 * upstream * largest * gamma * sides[:, :, None, None] * (1 + 2 * gamma)


def _compare_missing(got: Array, expected: Array) -> Comparison:
    """Compare which bins have no argmax."""
    return compare((got == -1).astype(np.float64), (expected == -1).astype(np.float64), 0.0, 0)


def _adds_sixteenths(case: Case, terms: Results) -> bool:
    """Return whether a gradient's sums are exact: small enough, and of multiples of 1/16."""
    largest = 1 / 16 / np.finfo(np.float32).eps
    return bool(np.all(case.grad * 16 % 1 == 0) and np.all(terms.get("gradient", 0.0) < largest))


def samples_are_exact(case: Case) -> bool:
    """Return whether no sample of ROI align is rounded: ties are ties in any implementation."""
    ratio = case.options["sampling_ratio"]
    samples = np.array(case.size) * ratio  # of a box, along each axis
    with np.errstate(all="ignore"):
        rows, columns = case.scale if isinstance(case.scale, tuple) else (case.scale, case.scale)
        boxes = case.rois[:, 1:] * (columns, rows, columns, rows)
        return bool(
            np.isin(samples, (1, 2, 4, 8)).all()
            and np.all((boxes * 4 % 1 == 0) & (np.abs(boxes) < 1000))
            and np.all((case.maps * 16 % 1 == 0) & (np.abs(case.maps) <= 8))
        )


def _compare_samples(case: Case, got: Array, expected: Results, terms: Results) -> Comparison:
    """Compare indices of samples: where they differ, both samples must have the same value.

    The samples are ROI align's; other maxima over samples are not supported here.
    """
    indices, argmax = got.astype(np.int64), expected["argmax"]
    if samples_are_exact(case):
        return compare(indices.astype(np.float64), argmax, 0.0, 0)
    others = np.argwhere((indices != argmax) & (indices >= 0))
    values, best = np.where(argmax < 0, -1.0, 0.0), np.where(indices < 0, -1.0, 0.0)
    allowed = np.zeros(values.shape)
    fixed = oracle_of(case.operation).operation.fixed
    rules = fixed.get("rules", reference.ROI_ALIGN).of_boxes(case.options.get("aligned", False))
    real = fixed.get("coordinate_dtype", case.real)
    groups = SYSTEMS[case.operation].group_size(case.options, case.size)
    for k, c, ph, pw in others:
        with np.errstate(all="ignore"):
            box = reference.BoxOnMap(
                tuple(case.rois[k, 1:].tolist()),
                case.size,
                case.maps.shape[2:],
                case.scale,
                case.options["sampling_ratio"],
                real,
            )
            place = int(ph), int(pw)
            one_bin = reference.bin_of(rules, box, place)
            number = int(indices[k, c, ph, pw])
            channels = reference.channels_of_bin(place, groups, case.size)
            image = case.maps[case.images[k], channels][c : c + 1]
            values[k, c, ph, pw] = one_bin.value_of_sample(number, image)[0]
        best[k, c, ph, pw] = expected["pooled"][k, c, ph, pw]
        allowed[k, c, ph, pw] = terms["pooled"][k, c, ph, pw]
    return compare(values.astype(case.real), best, allowed, 4)


def problem_of_types(case: Case, got: Results) -> str | None:
    """Return the problem with the results' types, or None."""
    returns_codes = SYSTEMS[case.operation].returns_codes
    for name, array in got.items():
        wanted = dtypes()[case.dtype if returns_codes else case.pooled_dtype]
        if name in SLOPES:
            wanted = np.dtype(case.real)
        if not name.startswith("argmax") and array.dtype.newbyteorder("=") != wanted:
            return f"{name} has dtype {array.dtype}, not {wanted}"
    return None
