"""Every operation against the oracle, over the whole catalogue, in every dtype and layout.

The oracle computes values in float64 and takes its decisions (floor, ceil, outside) in the
coordinate type of the code under test. An average then has about ten roundings of half an ulp,
each relative to the sum of the absolute terms; that sum is the oracle's answer for the absolute
values. Maxima over whole cells round nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
from _support.backends import Backend
from _support.catalogue import (
    AVERAGES,
    CASES,
    Case,
    every_form,
    every_variant,
    in_layout,
    inputs,
    inputs_on,
    shape_in_layout,
    to_nchw,
)
from _support.compare import (
    Array,
    apart,
    assert_close,
    assert_same_bits,
    beside,
    compute_type,
)

import roipool
from roipool import reference

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def size_of(maps: Array) -> Array:
    """Absolute values, those that are not finite left out."""
    return np.nan_to_num(np.abs(maps), nan=0.0, posinf=0.0)


class Answer(NamedTuple):
    """The oracle's answer, with the sums of absolute terms by which errors are measured."""

    pooled: Array
    terms: Array
    gradient: Array
    gradient_terms: Array
    argmax: Array | None = None


Oracle = TypeVar("Oracle", bound=Callable[..., Any])


def once(answer: Oracle) -> Oracle:
    """Keep the oracle's answers; infinities of either sign meet in some of its sums."""
    return cache(wraps(answer)(np.errstate(invalid="ignore", over="ignore")(answer)))


# ---- ROI pooling


@once
def pooled(case: Case, real: type) -> Answer:
    (maps, upstream), rois = inputs(case), case.table()
    values, argmax = reference.roi_pool(
        maps, rois, case.size, case.scale, return_argmax=True, coordinate_dtype=real
    )
    gradient = reference.roi_pool_backward(upstream, argmax, rois, maps.shape)
    return Answer(values, np.zeros_like(values), gradient, np.zeros_like(gradient), argmax)


@every_form(0)
@every_case
def test_roi_pool(backend: Backend, case: Case, dtype: np.dtype[Any], layout: str) -> None:
    answer = pooled(case, compute_type(dtype))
    maps, grad = inputs_on(backend, case, dtype, layout)
    rois = backend.to_device(case.table())
    got, argmax = roipool.roi_pool(
        maps, rois, case.size, case.scale, layout=layout, return_argmax=True
    )
    assert got.dtype == dtype
    assert argmax.dtype == np.int32
    values = to_nchw(backend.to_host(got), layout)
    np.testing.assert_array_equal(values.astype(np.float64), answer.pooled)
    np.testing.assert_array_equal(to_nchw(backend.to_host(argmax), layout), answer.argmax)
    shape = shape_in_layout(case.shape, layout)
    gradient = roipool.roi_pool_backward(grad, argmax, rois, shape, layout=layout)
    # Sums of a few multiples of 1/16 are exact: only the storing type rounds.
    assert gradient.dtype == dtype
    assert_close(to_nchw(backend.to_host(gradient), layout), answer.gradient, 0.0)


# ---- Averages


def as_it_is(array: Array) -> Array:
    return array


@once
def averaged(name: str, case: Case, real: type) -> Answer:
    op, (maps, upstream) = AVERAGES[name], inputs(case)

    def forward(values: Array, options: dict[str, Any]) -> Array:
        return op.forward(reference, values, case, as_it_is, coordinate_dtype=real, **options)

    both = beside(maps, size_of(maps))
    values, terms = apart(forward(both, op.outside(0.5)))
    if op.outside(0.5):
        terms = forward(size_of(maps), op.outside(0.0))
    gradient = op.backward(
        reference, beside(upstream, np.abs(upstream)), both.shape, case, as_it_is,
        coordinate_dtype=real,
    )  # fmt: skip
    return Answer(values, terms, *apart(gradient))


@every_variant
@every_form(0)
@every_case
@pytest.mark.parametrize("name", AVERAGES)
def test_averages(
    backend: Backend, name: str, case: Case, variant: Case, dtype: np.dtype[Any], layout: str
) -> None:
    op, answer = AVERAGES[name], averaged(name, variant, compute_type(dtype))
    maps, grad = inputs_on(backend, variant, dtype, layout)
    shape = shape_in_layout(variant.shape, layout)
    got = op.forward(roipool, maps, variant, backend.to_device, layout=layout, **op.outside(0.5))
    back = op.backward(roipool, grad, shape, variant, backend.to_device, layout=layout)
    assert got.dtype == back.dtype == dtype
    assert_close(to_nchw(backend.to_host(got), layout), answer.pooled, answer.terms, op.ulps)
    assert_close(
        to_nchw(backend.to_host(back), layout), answer.gradient, answer.gradient_terms, op.ulps
    )


# ---- ROI align


@once
def maximised(case: Case, real: type) -> Answer:
    (maps, upstream), rois = inputs(case), case.table()
    both, numbers = reference.roi_align(
        beside(maps, size_of(maps)), rois, case.size, case.scale, case.sampling,
        aligned=case.aligned, mode="max", return_argmax=True, coordinate_dtype=real,
    )  # fmt: skip
    (values, terms), argmax = apart(both), apart(numbers)[0]
    gradient = reference.roi_align_backward(
        beside(upstream, np.abs(upstream)), rois, beside(maps, maps).shape, case.scale,
        case.sampling, aligned=case.aligned, mode="max", argmax=beside(argmax, argmax),
        coordinate_dtype=real,
    )  # fmt: skip
    return Answer(values, terms, *apart(gradient), argmax)


@np.errstate(invalid="ignore")
def values_of_samples(case: Case, numbers: Array, real: type) -> Array:
    """Return the oracle's value of sample `numbers[k, c, ph, pw]` of each bin; -inf for -1."""
    maps, rules = inputs(case)[0], reference.ROI_ALIGN.of_boxes(case.aligned)
    values = np.full(numbers.shape, -np.inf)
    for k, c, ph, pw in np.argwhere(numbers >= 0):
        box = reference.BoxOnMap(
            tuple(case.table()[k, 1:]), case.size, case.shape[2:], case.scale, case.sampling, real
        )
        found = reference.bin_of(rules, box, (ph, pw))
        image = maps[case.box_indices()[k]][c : c + 1]
        values[k, c, ph, pw] = found.value_of_sample(numbers[k, c, ph, pw], image)[0]
    return values


@every_variant
@every_form(1)
@every_case
def test_roi_align_maximum(
    backend: Backend, case: Case, variant: Case, dtype: np.dtype[Any], layout: str
) -> None:
    del case
    real = compute_type(dtype)
    answer = maximised(variant, real)
    maps, grad = inputs_on(backend, variant, dtype, layout)
    rois = backend.to_device(variant.table())
    place = (variant.size, variant.scale, variant.sampling)
    options: dict[str, Any] = {"aligned": variant.aligned, "mode": "max", "layout": layout}
    got = roipool.roi_align(maps, rois, *place, **options)
    assert got.dtype == dtype
    assert_close(to_nchw(backend.to_host(got), layout), answer.pooled, answer.terms)
    again, argmax = roipool.roi_align(maps, rois, *place, return_argmax=True, **options)
    assert_same_bits(backend.to_host(again), backend.to_host(got))
    # The size of an adaptive grid cannot be read back from a GPU: its argmax is always 64-bit.
    adaptive = np.min(variant.sampling) == 0
    narrow = not adaptive if backend.is_gpu else variant.numbered
    assert argmax.dtype == (np.int32 if narrow else np.int64)

    numbers = to_nchw(backend.to_host(argmax), layout)
    others = np.where(numbers == answer.argmax, -1, numbers)
    if np.any(others >= 0):  # allowed only between samples that rounding alone can exchange
        tolerance = 4 * np.finfo(real).eps * answer.terms
        values = values_of_samples(variant, others, real)
        assert np.all((others < 0) | (values >= answer.pooled - tolerance))
    np.testing.assert_array_equal(numbers < 0, answer.argmax < 0)

    argmax = backend.to_device(in_layout(answer.argmax, layout))
    shape = shape_in_layout(variant.shape, layout)
    gradient = roipool.roi_align_backward(grad, rois, shape, *place[1:], argmax=argmax, **options)
    assert gradient.dtype == dtype
    assert_close(to_nchw(backend.to_host(gradient), layout), answer.gradient, answer.gradient_terms)


@every_form(2)
@pytest.mark.parametrize("pixels", ["ties", "at most zero", "constant"])
def test_first_of_equal_samples_wins(
    backend: Backend, pixels: str, dtype: np.dtype[Any], layout: str
) -> None:
    # Quarters and small whole pixels: no sample is rounded, so equal ones are equal for everybody.
    # Many boxes reach over the border, where samples outside take part with 0.
    rng = np.random.default_rng(5)
    corners = rng.integers(-12, 48, (60, 4)) / 4
    rois = np.column_stack(
        [np.zeros(60), np.sort(corners.reshape(60, 2, 2), axis=1).reshape(60, 4)]
    )
    case = Case(f"equal {pixels}", rois, shape=(1, 6, 8, 9), size=(2, 2), pixels=pixels, sampling=2)
    answer = maximised(case, compute_type(dtype))
    maps = backend.to_device(in_layout(case.features().astype(dtype), layout))
    got, argmax = roipool.roi_align(
        maps, backend.to_device(rois), case.size, 1.0, 2, mode="max", layout=layout,
        return_argmax=True,
    )  # fmt: skip
    np.testing.assert_array_equal(to_nchw(backend.to_host(argmax), layout), answer.argmax)
    assert_close(to_nchw(backend.to_host(got), layout), answer.pooled, 0.0)


@once
def box_gradient(case: Case, real: type) -> Array:
    maps, upstream = inputs(case)
    return reference.roi_align_backward_rois(
        upstream, maps, case.table(), case.scale, case.sampling, aligned=case.aligned,
        coordinate_dtype=real,
    )  # fmt: skip


def largest_slope(case: Case) -> Array:
    """Return, per box, a bound on the sum of absolute terms of a box gradient in map cells."""
    maps, upstream = inputs(case)
    slopes = np.abs(upstream).sum(axis=(1, 2, 3))
    return 2 * slopes[:, None] * np.max(size_of(maps), initial=0.0)


@every_variant
@every_form(3)
@every_case
def test_roi_align_box_gradient(
    backend: Backend, case: Case, variant: Case, dtype: np.dtype[Any], layout: str
) -> None:
    del case
    real = compute_type(dtype)
    maps, grad = inputs_on(backend, variant, dtype, layout)
    got = roipool.roi_align_backward_rois(
        grad, maps, backend.to_device(variant.table()), variant.scale, variant.sampling,
        aligned=variant.aligned, layout=layout,
    )  # fmt: skip
    assert got.dtype == real
    terms = variant.scale * largest_slope(variant)
    assert_close(backend.to_host(got), box_gradient(variant, real), terms, ulps=1)


# ---- Crop and resize


@once
def crop_box_gradient(case: Case, real: type) -> Array:
    maps, upstream = inputs(case)
    return reference.crop_and_resize_backward_boxes(
        upstream, maps, case.boxes(), case.box_indices(), coordinate_dtype=real
    )


@every_form(4)
@every_case
def test_crop_and_resize_box_gradient(
    backend: Backend, case: Case, dtype: np.dtype[Any], layout: str
) -> None:
    real = compute_type(dtype)
    maps, grad = inputs_on(backend, case, dtype, layout)
    boxes, images = backend.to_device(case.boxes()), backend.to_device(case.box_indices())
    got = roipool.crop_and_resize_backward_boxes(grad, maps, boxes, images, layout=layout)
    assert got.dtype == real
    last = np.maximum(np.array([case.shape[2], case.shape[3]] * 2) - 1, 0)
    terms = last * largest_slope(case)
    assert_close(backend.to_host(got), crop_box_gradient(case, real), terms, ulps=1)
