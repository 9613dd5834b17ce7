"""What the oracle answers to a call, and how close the call's results must be.

Averages, and gradients, are compared by roundings of the sum of their absolute terms, which is the
oracle's answer for absolute values; maxima over cells, copies and every argmax bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from roipool import reference
from roipool.systems import SYSTEMS, Oracle, Results, oracle_of
from roipool.systems.oracles import LOWEST_FLOAT32
from roipool.verification.tolerance import Comparison, compare
from roipool.verification.trials import SAMPLE_ARGMAX

from .call import run
from .case import Array, Case, dtypes

Slack: TypeAlias = Callable[[str, Array], Array | float]


def none(result: str, expected: Array) -> float:
    """Allow nothing else."""
    return 0.0


def bin_value_of(operation: str) -> str:
    """Return what a pooled value of a row of `SYSTEMS` is."""
    return oracle_of(operation).operation.bin_value


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
    case : Case
        The call.
    got : dict
        What `run` returned for it.
    oracle : Oracle, optional
        By default the operation's.
    argmax : ndarray, optional
        What the gradient of a maximum was computed from; by default the one that `got` has.
    slack : function
        What else is allowed of each number, from the name of a result and its expected values.

    Yields
    ------
    (str, Comparison)
        The name of each result and how it compares.
    """
    if oracle_of(case.operation).cannot_answer(case):
        return
    oracle = oracle or oracle_of(case.operation)
    expected, terms = _expected(case, got, oracle, got.get("argmax") if argmax is None else argmax)
    if not case.options.get("exact_gradient", True):
        expected.pop("gradient", None)  # the original's own
    argmax_names = [name for name in expected if name.startswith("argmax") and name in got]
    for name in argmax_names:
        if f"{case.operation} argmax" in SAMPLE_ARGMAX:
            yield name, _compare_samples(case, got[name], expected, terms)
        elif SYSTEMS[case.operation].samples == "grid" or "_" in name:
            yield f"{name} == -1", _compare_nobody(got[name], expected[name])
        else:
            yield name, compare(got[name].astype(np.float64), expected[name], 0.0, 0)
    bin_value = bin_value_of(case.operation)
    if bin_value == "average" and SYSTEMS[case.operation].samples != "one":
        terms["pooled"] = terms["pooled"] * (length_of_sums(case) / 8)[:, None, None, None]
    if "gradient" in terms:
        terms["gradient"] = terms["gradient"] * (length_of_gradient_sums(case) / 8)
    if "box_gradient" in expected and "box_gradient" in got:
        # A slope between infinite cells has no value, and sums of it depend on what is merged.
        nothing = np.isnan(expected["box_gradient"])
        if SYSTEMS[case.operation].samples == "points":
            nothing |= _decided_by_rounding(case, got["box_gradient"], expected["box_gradient"])
        expected["box_gradient"] = np.where(nothing, got["box_gradient"], expected["box_gradient"])
    for name in set(expected) & set(got) - set(argmax_names):
        # The bound for boxes is generous, but few samples of a rotated one can reach it.
        by_boxes = 4 if SYSTEMS[case.operation].samples == "points" else 1
        ulps = {"pooled": 0 if bin_value == "cell" else 4, "gradient": 4, "box_gradient": by_boxes}[
            name
        ]
        allowed = slack(name, expected[name])
        yield name, compare(got[name], expected[name], terms[name], ulps, more=allowed)


def _decided_by_rounding(case: Case, got: Array, expected: Array) -> Array:
    """Return which numbers of turned boxes depend on whether a slope is 0 or a rounding away.

    Those of boxes that read a cell which is not finite: a slope of exactly 0 leaves it out.
    """
    marked = replace(
        case, maps=(~np.isfinite(case.maps)).astype(np.float64), dtype="float64", layout="NCHW",
        form="table", storage="plain", out="new",
    )  # fmt: skip
    linear = SYSTEMS[case.operation]._replace(backward="", box_gradient="")
    pooled = run(marked, reference, linear, coordinate_dtype=case.real)["pooled"]
    reads = (pooled != 0).max(axis=(1, 2, 3), initial=False)[:, None]
    return reads & ~(np.isfinite(got) & np.isfinite(expected))


def length_of_sums(case: Case) -> Array:
    """Return how many cells a bin of each box may read down and along, 8 at least.

    Where rows and columns are not apart, each cell counts.

    So many products are added one after the other, each with half a rounding: 4 roundings for the
    usual 8, and more for bins that average much of a map.
    """
    turned = SYSTEMS[case.operation].samples == "points"
    cells = np.full(len(case.rois), float(turned))
    for axis, (low, high) in enumerate(((2, 4), (1, 3))):
        size = case.maps.shape[2 + axis]
        with np.errstate(all="ignore"):
            ends = np.nan_to_num(case.rois[:, [low, high]] * case.options.get("spatial_scale", 1.0))
            reach = np.maximum(np.ptp(np.clip(ends, -1e9, 1e9), axis=1), 1.0)
        along = np.minimum(size, reach / case.size[axis] + 2)
        cells = cells * along if turned else cells + along
    ratio = case.options.get("sampling_ratio", 0) if turned else 0
    # Weights of a turned box's samples are added up, too, however few cells they reach.
    samples = ratio**2 if isinstance(ratio, int) else math.prod(ratio)
    return np.maximum(cells, max(8, samples))


def length_of_gradient_sums(case: Case) -> int:
    """Return how many products a cell's gradient may add up one after the other, 8 at least.

    They are those of the rows, and of the columns, of a box's bins, and then those of the boxes.
    """
    turned = SYSTEMS[case.operation].samples == "points"
    return max(8, (math.prod(case.size) if turned else sum(case.size)) + len(case.rois))


def _expected(
    case: Case, got: Results, oracle: Oracle, argmax: Array | None
) -> tuple[Results, Results]:
    """Return the oracle's results and their sums of absolute terms: one run for both."""
    real, finish, case_dtype = case.real, partial(oracle.finish, case), case.dtype
    case = replace(
        oracle.prepare(case), dtype="float64", layout="NCHW", form="table", storage="plain"
    )
    twice = replace(case, maps=_and_size(case.maps), grad=_and_size(case.grad))
    more: dict[str, Any] = {
        "coordinate_dtype": oracle.operation.fixed.get("coordinate_dtype", real)
    }
    if argmax is not None and oracle.operation.backward:
        more["argmax"] = np.concatenate([argmax] * 2, axis=1).astype(np.int64)
    linear = oracle.operation._replace(box_gradient="")
    with np.errstate(all="ignore"):
        both = run(twice, reference, linear, **more)
        channels = case.maps.shape[1]
        expected = {name: array[:, :channels] for name, array in both.items()}
        terms = {name: array[:, channels:] for name, array in both.items()}
        if "box_gradient" in got:
            slopes = oracle.operation._replace(
                forward=oracle.operation.box_gradient, backward="", box_gradient="",
                returns=("box_gradient",),
            )  # fmt: skip
            expected |= run(case, reference, slopes, coordinate_dtype=real)
            terms["box_gradient"] = _terms_of_box_gradient(case)
    expected = finish(expected)
    expected["pooled"] = _stored(expected["pooled"], dtypes()[case_dtype])
    return expected, terms


def _stored(pooled: Array, dtype: np.dtype[Any]) -> Array:
    """Return values with the lowest float32, where a maximum found nothing, as a type stores it."""
    with np.errstate(over="ignore"):
        return np.where(pooled == LOWEST_FLOAT32, np.float64(dtype.type(LOWEST_FLOAT32)), pooled)


def _and_size(numbers: Array) -> Array:
    """Return channels followed by their absolute values; 0 for what is not finite."""
    size = np.nan_to_num(np.abs(numbers), nan=0.0, posinf=0.0)
    return np.concatenate([numbers, size], axis=1)


def _terms_of_box_gradient(case: Case) -> Array:
    """Return, for each box and coordinate, a bound on the sum of absolute terms."""
    upstream = np.abs(case.grad).sum(axis=(1, 2, 3))[:, None]
    sizes = np.abs(case.maps)[np.isfinite(case.maps)]
    slopes = 2 * upstream * np.max(sizes, initial=0.0)
    if SYSTEMS[case.operation].samples == "one":
        return np.array([max(size - 1, 0) for size in case.maps.shape[2:]] * 2) * slopes
    scale = np.abs(float(case.options["spatial_scale"]))
    if SYSTEMS[case.operation].samples != "points":
        return scale * np.tile(slopes, 4)
    with np.errstate(all="ignore"):  # the angle moves a sample by its distance from the centre
        sides = np.abs(case.rois[:, 3:] - case.rois[:, 1:3]) * scale
        reach = np.maximum(np.nan_to_num(sides), 1).sum(axis=1, keepdims=True) / 2
    unit = np.pi / 180 if case.options["angle_unit"] == "degrees" else 1.0
    return np.hstack([scale * np.tile(slopes, 4), unit * reach * slopes])


def _compare_nobody(got: Array, expected: Array) -> Comparison:
    return compare((got == -1).astype(np.float64), (expected == -1).astype(np.float64), 0.0, 0)


def _compare_samples(case: Case, got: Array, expected: Results, terms: Results) -> Comparison:
    """Compare indices of samples: one that is not the oracle's must have its value, rounded.

    The samples are ROI align's; another maximum of samples needs those of its oracle here.
    """
    indices, argmax = got.astype(np.int64), expected["argmax"]
    others = np.argwhere((indices != argmax) & (indices >= 0))
    values, best = np.where(argmax < 0, -1.0, 0.0), np.where(indices < 0, -1.0, 0.0)
    allowed = np.zeros(values.shape)
    rules = reference.ROI_ALIGN.of_boxes(case.options["aligned"])
    for k, c, ph, pw in others:
        with np.errstate(all="ignore"):
            box = reference.BoxOnMap(
                tuple(case.rois[k, 1:].tolist()), case.size, case.maps.shape[2:],
                case.options["spatial_scale"], case.options["sampling_ratio"], case.real,
            )  # fmt: skip
            found = reference.bin_of(rules, box, (int(ph), int(pw)))
            number = int(indices[k, c, ph, pw])
            image = case.maps[case.images[k], c : c + 1]
            values[k, c, ph, pw] = found.value_of_sample(number, image)[0]
        best[k, c, ph, pw] = expected["pooled"][k, c, ph, pw]
        allowed[k, c, ph, pw] = terms["pooled"][k, c, ph, pw]
    return compare(values.astype(case.real), best, allowed, 4)


def problem_of_types(case: Case, got: Results) -> str | None:
    """Return what is wrong with the results' types, if something is."""
    for name, array in got.items():
        wanted = dtypes()[case.dtype]
        if name == "box_gradient":
            wanted = np.dtype(case.real)
        if not name.startswith("argmax") and array.dtype.newbyteorder("=") != wanted:
            return f"{name} has dtype {array.dtype}, not {wanted}"
    return None
