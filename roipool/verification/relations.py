"""Metamorphic relations: properties between calls that need no oracle, so inputs can be large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from roipool import _cpu, reference
from roipool._definitions import OPS
from roipool._dtypes import INTEGERS, allowed_dtypes
from roipool._settings import NON_TEMPORAL_BYTES
from roipool.systems import SYSTEMS, System
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.case import Array, Case, channels_of_maps, dtypes, held, with_channels
from roipool.verification.tolerance import Comparison, compare, compare_bits

from .call import Results, known_arguments, run, to_nchw
from .oracle import (
    SLOPES,
    bin_value_of,
    extrapolated_terms,
    length_of_gradient_sums,
    length_of_sums,
)

Comparisons: TypeAlias = Iterator[tuple[str, Comparison]]
# The last argument is roipool, or an object with functions of the same names.
Relation: TypeAlias = Callable[[Case, Results, Any], Comparisons]
ULPS = 4  # roundings of one call's sums, each relative to the sum of absolute terms
ULPS_OF_TRANSPOSE = 8  # roundings in <f(x), g> = <x, gradient>: each side's are one operation's
STEP = 2.0**-20  # of box coordinates, in image pixels


def same(got: Results, expected: Results) -> Comparisons:
    """Compare results bit for bit."""
    for name, array in got.items():
        yield name, compare_bits(array, expected[name])


def close(case: Case, got: Results, expected: Results, library: Any) -> Comparisons:
    """Compare results that may differ in the order of summation only.

    If rounding makes another sample the argmax, the gradients are not compared.
    """
    sizes = _absolute_terms(case, expected, library)
    if _has_sample_argmax(case) and not all(
        np.array_equal(got[name], expected[name]) for name in _argmax_of(case, got)
    ):
        got = {name: array for name, array in got.items() if name != "gradient"}
    for name, array in got.items():
        if name == "gradient" or (name == "pooled" and _is_average(case)):
            terms = sizes[name].astype(np.float64)
            if name == "pooled":
                terms *= (length_of_sums(case) / 8)[:, None, None, None]
            else:
                terms *= length_of_gradient_sums(case) / 8
            yield (
                name,
                compare(array, expected[name].astype(np.float64), terms, 2 * ULPS, roundings=2),
            )
        elif name not in SLOPES and not _has_sample_argmax(case):
            yield name, compare_bits(array, expected[name])


def _absolute_terms(case: Case, results: Results, library: Any) -> Results:
    """Return sums of absolute terms, or bounds on them where weights may be below 0."""
    bound = extrapolated_terms(case)
    return bound or run(_absolute(case), library, **_argmax_of(case, results))


def _absolute(case: Case) -> Case:
    """Return the case whose results are the sums of absolute terms, if no weight is below 0.

    Gradients that compute the maxima themselves need the maps unchanged.
    """
    maps = np.nan_to_num(np.abs(case.maps), nan=0.0, posinf=0.0)
    if not _is_average(case) and len(SYSTEMS[case.operation].returns) == 1:
        maps = case.maps
    # The least int8 has no absolute value.
    return replace(case, dtype=case.pooled_dtype, maps=maps, grad=np.abs(case.grad), out="new")


def _is_average(case: Case) -> bool:
    return bin_value_of(case.operation) == "average"


def _has_sample_argmax(case: Case) -> bool:
    operation = SYSTEMS[case.operation]
    return operation.samples == "grid" and len(operation.returns) > 1


def threads(case: Case, got: Results, library: Any) -> Comparisons:
    """Results are bitwise identical for any number of threads, however little work each has."""
    others = (2, 5) if case.threads == 1 else {1, 2, 3} - {case.threads}
    try:
        _cpu.use_thread_per_work(1)
        for number in others:
            library.set_num_threads(number)
            for name, comparison in same(run(case, library), got):
                yield f"{name} with {number} threads", comparison
    finally:
        _cpu.use_thread_per_work(_cpu.WORK_OF_THREAD)
        library.set_num_threads(case.threads)


def again(case: Case, got: Results, library: Any) -> Comparisons:
    """A repeated call returns the same bits."""
    yield from same(run(case, library), got)


def instruction_sets(case: Case, got: Results, library: Any) -> Comparisons:
    """Every instruction set makes the same discrete decisions, and sums equally accurately."""
    chosen = _cpu.instruction_set()
    try:
        for name in _cpu.instruction_sets():
            if name != chosen:
                _cpu.use_instruction_set(name)
                for what, comparison in close(case, run(case, library), got, library):
                    yield f"{what} on {name}", comparison
    finally:
        _cpu.use_instruction_set(chosen)


def non_temporal_stores(case: Case, got: Results, library: Any) -> Comparisons:
    """Results written with non-temporal stores are bitwise identical."""
    try:
        _cpu.use_non_temporal_stores(0)
        yield from same(run(case, library), got)
    finally:
        _cpu.use_non_temporal_stores(NON_TEMPORAL_BYTES)


def layouts(case: Case, got: Results, library: Any) -> Comparisons:
    """The other layout returns equally accurate sums, and the same maxima."""
    others = [name for name in SYSTEMS[case.operation].layouts if name != case.layout]
    for layout in others:
        results = run(replace(case, layout=layout), library)
        for what, comparison in close(case, results, got, library):
            yield f"{what} in {layout}", comparison


def wider_type(case: Case, got: Results, library: Any) -> Comparisons:
    """float16, bfloat16 and integers compute like a wider type, with one rounding at the end."""
    dtype, wider = dtypes()[case.pooled_dtype], SYSTEMS[case.operation].rounds_from
    if (dtype.itemsize == 2 or case.dtype in INTEGERS) and wider:
        more: dict[str, Any] = {"argmax": got["argmax"]} if "argmax" in got else {}
        if more and case.layout == "NHWC":
            more["argmax"] = np.ascontiguousarray(np.moveaxis(got["argmax"], 1, -1))
        wide = run(replace(case, dtype=wider), library, **more)
        with np.errstate(over="ignore"):
            rounded = {
                name: array.astype(dtype) if name in ("pooled", "gradient") else array
                for name, array in wide.items()
            }
        yield from same(got, rounded)


def chosen_types(case: Case, got: Results, library: Any) -> Comparisons:
    """Values pooled from integers are rounded once to the type that a caller chooses."""
    operation = SYSTEMS[case.operation]
    if case.dtype not in INTEGERS or operation.forward not in OPS:
        return
    for name in filter(dtypes().__contains__, allowed_dtypes(case.dtype)):
        results = run(replace(case, out="new"), library, operation.only_forward, dtype=name)
        pooled, expected = results.pop("pooled"), held(got["pooled"], name)
        yield f"pooled in {name}", compare_bits(pooled, expected.astype(dtypes()[name]))
        yield from same(results, got)


def _divisible(case: Case) -> System:
    """Return the functions of a system whose results for parts of a call are parts of its results.

    They are all but a gradient that mixes channels and boxes.
    """
    system = SYSTEMS[case.operation]
    is_mixed = system.mixes_gradients and not case.options.get("exact_gradient", True)
    return system._replace(backward="") if is_mixed else system


def channels_apart(case: Case, got: Results, library: Any) -> Comparisons:
    """Channels are independent; only the rounding of sums may depend on their number."""
    count, group = case.grad.shape[1], case.channel_group
    if count > group:
        cut = max(1, count // group * 3 // 8) * group
        for part in (slice(0, cut), slice(cut, count)):
            some = with_channels(case, part)
            results = run(some, library, _divisible(case))
            results = {name: each for name, each in results.items() if name not in SLOPES}
            of_maps = channels_of_maps(case, part)
            whole = {
                name: got[name][:, of_maps if name == "gradient" else part] for name in results
            }
            for name, comparison in close(some, results, whole, library):
                yield f"{name} of channels {part.start} to {part.stop}", comparison


def boxes_apart(case: Case, got: Results, library: Any) -> Comparisons:
    """Boxes are independent: each alone returns the same bits."""
    if case.form == "one array per image":
        case = replace(case, form="table")
    count = len(case.rois)
    some = range(count) if count < 6 else range(0, count, count // 5)
    for k in some:
        part = slice(k, k + 1)
        results = run(replace(case, rois=case.rois[part], grad=case.grad[part]), library)
        results.pop("gradient", None)
        whole = {name: got[name][part] for name in results}
        for name, comparison in same(results, whole):
            yield f"{name} of box {k}", comparison


def boxes_reversed(case: Case, got: Results, library: Any) -> Comparisons:
    """The order of boxes changes only the order of sums."""
    if case.form == "one array per image":
        case = replace(case, form="table")
    if SYSTEMS[case.operation].forms == PER_IMAGE:
        return  # tables per image fix the order
    turned_case = replace(case, rois=case.rois[::-1], grad=case.grad[::-1])
    results = run(turned_case, library, _divisible(case))
    turned = {name: array if name == "gradient" else array[::-1] for name, array in results.items()}
    gradient = turned.pop("gradient", None)
    yield from same(turned, got)
    if gradient is not None and not _has_sample_argmax(case):
        yield from close(case, {"gradient": gradient}, got, library)


def images_apart(case: Case, got: Results, library: Any) -> Comparisons:
    """Images are independent."""
    for n in range(len(case.maps)):
        own = case.images == n
        table = case.rois[own]
        table[:, 0] = 0
        alone = replace(case, maps=case.maps[n : n + 1], rois=table, grad=case.grad[own])
        results = run(alone, library, _divisible(case))
        whole = {
            name: got[name][n : n + 1] if name == "gradient" else got[name][own] for name in results
        }
        for name, comparison in same(results, whole):
            yield f"{name} of image {n}", comparison


def transposes(case: Case, got: Results, library: Any) -> Comparisons:
    """The adjoint test: <f(x), g> = <x, gradient(g)> in each image and group of channels."""
    half = dtypes()[case.pooled_dtype].itemsize == 2
    if "gradient" not in got or half or not np.isfinite(case.maps).all():
        return
    if not case.options.get("exact_gradient", True):
        return  # the library's own gradient is not the derivative
    if case.options.get("extrapolation_value"):
        case = replace(case, options=case.options | {"extrapolation_value": 0.0})
        got = run(case, library)
    sizes = _absolute_terms(case, got, library)
    pooled = np.where(np.isfinite(got["pooled"]), got["pooled"].astype(np.float64), 0.0)
    is_empty = np.abs(pooled) > 1e30  # maxima
    if case.operation.startswith("mmcv."):
        is_empty |= pooled == -10000
    pooled[is_empty] = 0.0
    forward = np.zeros((len(case.maps), case.grad.shape[1]))
    np.add.at(forward, case.images, _products(case.grad, pooled))
    backward = _in_pooled_channels(case, _products(case.maps, got["gradient"]))
    terms = _in_pooled_channels(case, _products(np.abs(case.maps), sizes["gradient"]))
    terms *= max(np.max(length_of_sums(case), initial=8), length_of_gradient_sums(case)) / 8
    channels, group = case.grad.shape[1], case.channel_group
    by_group = (len(forward), channels // group, group)
    forward, backward, terms = (
        each.reshape(by_group).sum(axis=2) for each in (forward, backward, terms)
    )
    yield (
        "pooled and gradient",
        compare(forward.astype(got["pooled"].dtype), backward, terms, ULPS_OF_TRANSPOSE),
    )


def differences(case: Case, got: Results, library: Any) -> Comparisons:
    """The gradient of boxes equals finite differences of the pooled values.

    Pooled values are linear, or nearly so, between kinks, where a sample passes from one cell to
    the next. At a kink the differences to both sides disagree, and nothing is compared.
    """
    exact = case.dtype == "float64" and np.isfinite(case.maps).all()
    if not exact or "box_gradient" not in got or "boxes" in SYSTEMS[case.operation].boxes(case):
        return
    alone = SYSTEMS[case.operation].only_forward
    here = _weighted(case, library, alone, 0, 0.0)[:, None]
    columns = range(got["box_gradient"].shape[1])
    low = np.stack([_weighted(case, library, alone, column, -STEP) for column in columns], axis=1)
    high = np.stack([_weighted(case, library, alone, column, STEP) for column in columns], axis=1)
    sizes = np.abs(case.grad).sum(axis=(1, 2, 3)) * np.max(np.abs(case.maps), initial=0.0)
    reach = 1 + np.max(np.nan_to_num(np.abs(case.rois[:, 1:]), posinf=0.0), axis=1, initial=0.0)
    rounding = (2.0**-46 * sizes * reach / STEP)[:, None]
    if SYSTEMS[case.operation].samples == "points":  # rotated samples move on curves
        rounding += (STEP * sizes * (reach * (1 + abs(case.options["spatial_scale"]))) ** 2)[
            :, None
        ]
    with np.errstate(invalid="ignore"):
        smooth = np.abs(high - 2 * here + low) <= rounding * STEP
        slope = (high - low) / (2 * STEP)
        error = np.where(smooth, np.abs(slope - got["box_gradient"]), 0.0)
    # Twice the rounding, since a kink may hide within the tolerance of the test for smoothness.
    allowed = np.broadcast_to(2 * rounding / np.finfo(np.float64).eps / 16, error.shape)
    yield "box_gradient", compare(error, np.zeros(error.shape), allowed, 4)


def pyramids(case: Case, got: Results, library: Any) -> Comparisons:
    """One call over several maps returns the same as a call for each map."""
    if case.operation != "roi_align" or case.dtype in INTEGERS:
        return
    height, width = case.maps.shape[2:]
    maps = (case.maps, case.maps[:, :, ::-1, : width // 2 + 1], case.maps[:, :, : height // 3 + 1])
    levels = np.arange(len(case.rois)) % len(maps)
    options = {key: case.options[key] for key in ("sampling_ratio", "aligned")}
    parts = [
        replace(
            case,
            maps=level_maps,
            rois=case.rois[levels == level],
            grad=case.grad[levels == level],
            form="table",
            out="new",
            options=case.options | {"spatial_scale": case.options["spatial_scale"] * share},
        )
        for level, (level_maps, share) in enumerate(zip(maps, (1.0, 0.5, 1.25), strict=True))
    ]
    scales = [part.scale for part in parts]
    alone = [run(part, library) for part in parts]
    arguments = [known_arguments(part) for part in parts]
    features = [known["features"] for known in arguments]
    grad = known_arguments(case)["grad_output"]
    shared: dict[str, Any] = {"levels": levels, "layout": case.layout, **options}
    shapes = [known["input_shape"] for known in arguments]
    pooled = library.multilevel_roi_align(features, case.rois, case.size, scales, **shared)
    gradients = library.multilevel_roi_align_backward(grad, case.rois, shapes, scales, **shared)
    boxes = library.multilevel_roi_align_backward_rois(grad, features, case.rois, scales, **shared)
    for level, own in enumerate(alone):
        rows = levels == level
        yield from same({"pooled": to_nchw(pooled, case.layout)[rows]}, own)
        yield from same({"gradient": to_nchw(gradients[level], case.layout)}, own)
        yield from same({"box_gradient": boxes[rows]}, own)


def levels(case: Case, got: Results, library: Any) -> Comparisons:
    """`assign_levels` agrees with the oracle."""
    count = len(case.rois)
    first, size = count % 7 - 3, (224.0, 10.0, 0.3)[count % 3]
    options = (first, first + case.maps.shape[1] % 6, size, case.size[0] % 5)
    with np.errstate(over="ignore"):
        boxes = case.rois.astype(case.real)
    expected = reference.assign_levels(boxes, *options)
    assigned = library.assign_levels(boxes, *options)
    yield "levels", compare(assigned.astype(np.float64), expected.astype(np.float64), 0.0, 0)


def _weighted(case: Case, library: Any, forward: System, column: int, step: float) -> Array:
    """Return, for each box, <pooled, grad> with one coordinate moved by `step`."""
    given = forward.boxes(replace(case, form="table"))
    table = given["rois"].copy()
    table[:, 1 + column] += step
    moved = forward._replace(boxes=lambda _: {**given, "rois": table})
    pooled = run(replace(case, out="new"), library, moved)["pooled"]
    return (pooled * case.grad).sum(axis=(1, 2, 3))


def _argmax_of(case: Case, got: Results) -> dict[str, Any]:
    """Return the argmax or argmax positions as arguments, in the case's layout."""
    names = [name for name in got if name.startswith("argmax")]
    turn = case.layout == "NHWC"
    return {name: np.moveaxis(got[name], 1, -1) if turn else got[name] for name in names}


def _products(maps: Array, gradient: Array) -> Array:
    return (maps * gradient.astype(np.float64)).sum(axis=(2, 3))


def _in_pooled_channels(case: Case, sums: Array) -> Array:
    """Return sums of channels of the maps as those of the channels that are pooled from them."""
    groups = SYSTEMS[case.operation].groups_of(case.options, case.size)
    return sums.reshape(len(sums), case.grad.shape[1], groups).sum(axis=2)


RELATIONS: dict[str, Relation] = {
    "threads": threads,
    "instruction sets": instruction_sets,
    "non-temporal stores": non_temporal_stores,
    "layouts": layouts,
    "wider type": wider_type,
    "chosen types": chosen_types,
    "channels apart": channels_apart,
    "boxes apart": boxes_apart,
    "boxes reversed": boxes_reversed,
    "images apart": images_apart,
    "transposes": transposes,
    "differences": differences,
    "pyramids": pyramids,
    "levels": levels,
    "again": again,
}
