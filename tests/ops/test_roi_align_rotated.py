"""ROI align of rotated boxes: against the oracle, roi_align, and its own differences."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.catalogue import (
    Array,
    every_dtype,
    every_form,
    every_layout,
    in_layout,
    shape_in_layout,
    to_nchw,
)
from _support.compare import apart, assert_close, assert_same_bits, beside, compute_type
from _support.differences import check_features, differences

import roipool
from roipool import _cpu, reference

nan, inf = math.nan, math.inf
Options = dict[str, Any]


class Case(NamedTuple):
    """Boxes (image, centre x, centre y, width, height, angle), and how they are pooled."""

    name: str
    rois: list[tuple[float, ...]]
    shape: tuple[int, int, int, int] = (2, 3, 8, 9)
    size: tuple[int, int] = (2, 3)
    scale: float = 1.0
    sampling: int | tuple[int, int] = 0
    options: Options = {}  # noqa: RUF012 - never changed

    def __str__(self) -> str:
        return self.name

    def numbers(self, *shape: int) -> Array:
        """Return multiples of 1/16, the same for the same shape."""
        return np.random.default_rng(shape).integers(-128, 128, shape) / 16

    def features(self) -> Array:
        """Return maps, NCHW."""
        return self.numbers(*self.shape)

    def gradient(self) -> Array:
        """Return a gradient of the pooled values."""
        return self.numbers(len(self.rois), self.shape[1], *self.size)

    def table(self, real: type = np.float64) -> Array:
        """Return the boxes as the library converts them."""
        with np.errstate(over="ignore"):
            return np.array(self.rois, np.float64).reshape(-1, 6).astype(real)


PLAIN = [(0, 4.2, 3.7, 5.1, 2.9, 0.3), (1, 2.9, 5.4, 3.3, 6.1, -1.1), (0, 5, 4, 6, 7, 2.5)]
EIGHTHS = [(0, 4.5, 4.0, 4.0, 3.0, turn * math.pi / 4) for turn in range(-4, 9)]
CASES = [
    Case("adaptive", PLAIN),
    Case("one sample", PLAIN, sampling=1),
    Case("two samples", PLAIN, sampling=2),
    Case("uneven samples", PLAIN, sampling=(3, 1)),
    Case("many samples", PLAIN[:2], sampling=20),
    Case("many samples in the margin", [(0, 4, -0.25, 2, 1.5, 0), (1, 9.25, 4, 1.5, 2, 0)],
         size=(1, 1), sampling=32),
    Case("many samples within a rounding of the margin",
         [(0, 4.5, 8.5, 1e-7, 1e-7, 0.7), (0, -0.5, 4.5, 1e-8, 1e-8, 0.7)],
         size=(1, 1), sampling=32),
    Case("clockwise", PLAIN, options={"clockwise": True}),
    Case("not aligned", PLAIN, options={"aligned": False}),
    Case("held at one cell", [(0, 4, 4, 0.3, 5, 0.7), (1, 4, 4, 0, 0, 1)], sampling=2,
         options={"aligned": False}),
    Case("degrees", [(0, 4.2, 3.7, 5.1, 2.9, 20), (1, 3, 5, 3, 6, -290)],
         options={"angle_unit": "degrees"}),
    Case("eighths of a turn", EIGHTHS, sampling=2),
    Case("many turns", [(0, 4.2, 3.7, 5.1, 2.9, turns * 2 * math.pi + 0.3)
                        for turns in (-1000, -3, 7, 100000)]),
    Case("scale", [(0, 67.2, 59.2, 81.6, 46.4, 0.3), (1, 46, 86, 53, 98, -1)], scale=1 / 16),
    Case("scale 0", PLAIN, scale=0.0),
    Case("half outside", [(0, 0, 0, 9, 6, 0.5), (1, 9, 8, 12, 3, 2), (0, 4, -1, 5, 5, 1)]),
    Case("outside", [(0, -9, 4, 5, 5, 0.5), (1, 30, 30, 9, 9, 2), (0, 4, 99, 7, 9, 3)]),
    Case("around the map", [(0, 4, 4, 40, 50, 0.4), (1, 9, 2, 60, 25, 2.2)]),
    Case("many times the map", [(0, 20, -30, 90, 70, 0.4)], size=(1, 2)),
    Case("samples far apart", [(0, 4, 4, 40, 50, 0.4), (1, 9, 2, 60, 25, 2.2)], sampling=3),
    Case("no extent", [(0, 4, 4, 0, 0, 1), (1, 4.5, 3.5, 0, 5, 1)], sampling=2),
    Case("no extent, adaptive", [(0, 4, 4, 0, 0, 1), (1, 4.5, 3.5, 0, 5, 1)]),
    Case("negative sides", [(0, 4, 4, -3, 5, 1), (1, 4.5, 3.5, -2, -5, 1)], sampling=2),
    Case("negative sides, adaptive", [(0, 4, 4, -3, 5, 1), (1, 4.5, 3.5, -2, -5, 1)]),
    Case("not finite", [tuple(bad if i == place else value for i, value in enumerate(PLAIN[0]))
                        for bad in (nan, inf, -inf, 1e39) for place in range(1, 6)] + PLAIN,
         sampling=2),
    Case("far", [(0, 2e9, 4, 5, 5, 1), (0, 4, -2e9, 4e9, 4e9, 0), (0, 4, 4, 5, 5, 2e9), *PLAIN]),
    Case("one cell", [(0, 0.5, 0.5, 1, 1, 0.6), (0, 0, 0, 3, 3, 1)], shape=(1, 2, 1, 1)),
    Case("one row", PLAIN, shape=(2, 3, 1, 9)),
    Case("one column", PLAIN, shape=(2, 3, 8, 1)),
    Case("more bins than cells", PLAIN, size=(11, 13)),
    Case("one bin", PLAIN, size=(1, 1)),
    Case("17 channels", PLAIN, shape=(2, 17, 6, 7)),
    Case("33 channels", PLAIN, shape=(2, 33, 6, 7)),
    Case("many boxes", [(k % 2, k % 9, k % 7, 3 + k % 4, 2 + k % 5, k) for k in range(60)]),
    Case("no boxes", []),
    Case("no images", [], shape=(0, 3, 8, 9)),
    Case("no channels", PLAIN, shape=(2, 0, 8, 9)),
    Case("no rows", PLAIN, shape=(2, 3, 0, 9)),
    Case("no columns", PLAIN, shape=(2, 3, 8, 0)),
]  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES, ids=str)


class Answer(NamedTuple):
    """The oracle's answers, with the sums of absolute terms by which errors are measured."""

    pooled: Array
    terms: Array
    gradient: Array
    gradient_terms: Array
    by_rois: Array


@cache
def answer(name: str, real: type) -> Answer:
    (case,) = (case for case in CASES if case.name == name)
    maps, grad, rois = case.features(), case.gradient(), case.table(real)
    options = {**case.options, "coordinate_dtype": real}
    place = (case.scale, case.sampling)
    both, grads = beside(maps, np.abs(maps)), beside(grad, np.abs(grad))
    return Answer(
        *apart(reference.roi_align_rotated(both, rois, case.size, *place, **options)),
        *apart(reference.roi_align_rotated_backward(grads, rois, both.shape, *place, **options)),
        reference.roi_align_rotated_backward_rois(grad, maps, rois, *place, **options),
    )


def moved(case: Case, real: type) -> float:
    """Return what another last bit of a float64 sine or cosine may change, in terms.

    In float32 they are the same: both were rounded from float64. Samples move by as many roundings
    as they are cells away from the centre; neighbouring pixels differ by 16 at most.
    """
    sides = case.table()[:, 3:5] * case.scale
    reach = np.abs(sides[np.isfinite(sides) & (np.abs(sides) < 1e6)]).max(initial=1)
    return 16 * float(reach) if real is np.float64 else 0.0


@every_form(5)
@every_case
def test_oracle(backend: Backend, case: Case, dtype: np.dtype[Any], layout: str) -> None:
    check_oracle(backend, case, dtype, layout)


@pytest.mark.thorough
@every_dtype
@every_case
def test_oracle_in_every_type(gpu: Backend, case: Case, dtype: np.dtype[Any]) -> None:
    check_oracle(gpu, case, dtype, "NCHW")


def check_oracle(backend: Backend, case: Case, dtype: np.dtype[Any], layout: str) -> None:
    """Compare a case's pooled values and gradients with the oracle's."""
    real = compute_type(dtype)
    expected = answer(case.name, real)
    put, get = backend.to_device, backend.to_host
    options: Options = {**case.options, "layout": layout}
    place = (case.scale, case.sampling)
    rois = put(case.table(real))
    maps = put(in_layout(case.features().astype(dtype), layout))
    grad = put(in_layout(case.gradient().astype(dtype), layout))
    shape = shape_in_layout(case.shape, layout)

    pooled = roipool.roi_align_rotated(maps, rois, case.size, *place, **options)
    assert pooled.dtype == dtype
    assert_close(to_nchw(get(pooled), layout), expected.pooled, expected.terms + moved(case, real))
    back = roipool.roi_align_rotated_backward(grad, rois, shape, *place, **options)
    assert back.dtype == dtype
    terms = expected.gradient_terms + moved(case, real)
    assert_close(to_nchw(get(back), layout), expected.gradient, terms, ulps=8)
    by_rois = get(roipool.roi_align_rotated_backward_rois(grad, maps, rois, *place, **options))
    assert by_rois.dtype == real
    assert by_rois.shape == (len(case.rois), 5)
    # Sums of terms of either sign, each of a few roundings.
    size = 1e3 * max(1.0, np.abs(expected.by_rois).max(initial=0))
    np.testing.assert_allclose(
        by_rois, expected.by_rois, rtol=0, atol=size * float(np.finfo(real).eps)
    )


# ---- By itself


@pytest.mark.parametrize("angle", [0.0, 2 * math.pi, -4 * math.pi])
@pytest.mark.parametrize("sampling", [0, 2])
def test_without_an_angle_it_is_roi_align(backend: Backend, sampling: int, angle: float) -> None:
    rng = np.random.default_rng(0)
    maps = backend.to_device(rng.normal(size=(2, 3, 20, 30)))
    low, sides = rng.uniform(-5, 25, (40, 2)), rng.uniform(0, 20, (40, 2))
    images = rng.integers(0, 2, (40, 1))
    corners = np.hstack([images, low, low + sides])
    rotated = np.hstack([images, low + sides / 2, sides, np.full((40, 1), angle)])
    got = roipool.roi_align_rotated(maps, backend.to_device(rotated), 7, 0.5, sampling)
    expected = roipool.roi_align(maps, backend.to_device(corners), 7, 0.5, sampling)
    got, expected = backend.to_host(got), backend.to_host(expected)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("place", "inside"), [(-1, 1), (5, 1), (-1.000001, 0), (5.000001, 0)])
def test_samples_one_cell_beyond_the_map_are_inside(
    backend: Backend, place: float, inside: int, aligned: bool
) -> None:
    half = 0.5 * aligned
    beyond, middle = place + half, 2 + half
    rois = np.array([[0, beyond, middle, 1, 1, 0], [0, middle, beyond, 1, 1, 0]])
    maps = backend.to_device(np.ones((1, 1, 5, 5), np.float32))
    pooled = roipool.roi_align_rotated(maps, backend.to_device(rois), 1, 1.0, 1, aligned=aligned)
    assert backend.to_host(pooled).ravel().tolist() == [inside, inside]


@pytest.mark.parametrize("side", [50.0, 1e6, 1e8])
@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_boxes_of_any_size_cost_no_more_than_the_map(
    backend: Backend, quarters: int, side: float
) -> None:
    # A quarter turn of the box is a quarter turn of the map.
    maps = np.random.default_rng(1).normal(size=(1, 2, 12, 12))
    box = [[0, 6, 6, side, side, quarters * math.pi / 2]]
    got = roipool.roi_align_rotated(backend.to_device(maps), backend.to_device(np.array(box)), 3)
    turned = np.ascontiguousarray(np.rot90(maps, -quarters, (2, 3)))
    half = side / 2
    expected = roipool.roi_align(turned, [[0, 6 - half, 6 - half, 6 + half, 6 + half]], 3)
    np.testing.assert_allclose(backend.to_host(got), expected, rtol=1e-9, atol=1e-12)


@thorough_on_the_emulator
@every_layout
@pytest.mark.parametrize("ratio", [0, 2, (1, 3)], ids=str)
def test_features_gradient(backend: Backend, ratio: Any, layout: str) -> None:
    shape = shape_in_layout((2, 3, 6, 7), layout)
    rois = backend.to_device(np.array(PLAIN))
    check_features(
        backend,
        lambda maps: roipool.roi_align_rotated(maps, rois, (2, 3), 0.9, ratio, layout=layout),
        lambda grad: roipool.roi_align_rotated_backward(
            grad, rois, shape, 0.9, ratio, layout=layout
        ),
        shape,
        step=1.0,
        layout=layout,
    )


@thorough_on_the_emulator
@every_layout
@pytest.mark.parametrize(
    "options",
    [{}, {"clockwise": True}, {"angle_unit": "degrees"}, {"aligned": False}],
    ids=str,
)
def test_rois_gradient(backend: Backend, options: Options, layout: str) -> None:
    maps = np.random.default_rng(2).normal(size=(2, 3, 9, 8))
    maps_there = backend.to_device(in_layout(maps, layout))
    rois = np.array([*PLAIN, (1, 1.2, 6.9, 4.7, 0.6, 0.9)])
    if options.get("angle_unit"):
        rois[:, 5] *= 180 / math.pi
    upstream = np.random.default_rng(3).normal(size=in_layout(np.empty((4, 3, 2, 3)), layout).shape)

    def loss(numbers: Array) -> float:
        boxes = backend.to_device(np.hstack([rois[:, :1], numbers]))
        pooled = roipool.roi_align_rotated(maps_there, boxes, (2, 3), 0.9, 2, layout=layout,
                                           **options)  # fmt: skip
        return float(np.sum(backend.to_host(pooled) * upstream))

    found = roipool.roi_align_rotated_backward_rois(
        backend.to_device(upstream), maps_there, backend.to_device(rois), 0.9, 2, layout=layout,
        **options,
    )  # fmt: skip
    expected = differences(loss, rois[:, 1:], 1e-6)
    np.testing.assert_allclose(backend.to_host(found), expected, rtol=0, atol=1e-7)


@every_layout
@pytest.mark.parametrize("name", _cpu.instruction_sets())
def test_threads_and_instruction_sets(name: str, layout: str) -> None:
    rng = np.random.default_rng(4)
    shape = shape_in_layout((2, 40, 30, 40), layout)
    maps = rng.normal(size=shape).astype(np.float32)
    sides, angles = rng.uniform(0, 25, (200, 2)), rng.uniform(-7, 7, (200, 1))
    rois = np.hstack([rng.integers(0, 2, (200, 1)), rng.uniform(0, 40, (200, 2)), sides, angles])
    grad = rng.normal(size=shape_in_layout((200, 40, 7, 7), layout)).astype(np.float32)

    def results() -> list[Array]:
        return [
            roipool.roi_align_rotated(maps, rois, 7, layout=layout),
            roipool.roi_align_rotated_backward(grad, rois, shape, layout=layout),
            roipool.roi_align_rotated_backward_rois(grad, maps, rois, layout=layout),
        ]

    threads, before = roipool.get_num_threads(), _cpu.instruction_set()
    try:
        baseline = results()
        _cpu.use_instruction_set(name)
        for number in (1, 2, 3):
            roipool.set_num_threads(number)
            found = results()
            for mine, first in zip(found, baseline, strict=True):
                np.testing.assert_allclose(mine, first, rtol=1e-4, atol=1e-4)
            again = results()
            for mine, other in zip(found, again, strict=True):
                assert_same_bits(mine, other)
            baseline = found if number == 1 else baseline
            for mine, one in zip(found, baseline, strict=True):
                assert_same_bits(mine, one)
    finally:
        roipool.set_num_threads(threads)
        _cpu.use_instruction_set(before)


def test_nan_spreads_to_the_bins_that_read_it_only() -> None:
    maps = np.zeros((1, 1, 9, 9), np.float32)
    maps[0, 0, 4, 4] = nan
    rois = [[0, 4.5, 4.5, 6, 6, 0.4], [0, 4.5, 4.5, 6, 6, math.pi / 2]]
    got = np.isnan(roipool.roi_align_rotated(maps, rois, 3, sampling_ratio=2)[:, 0])
    assert got[:, 1, 1].all()
    assert not got[:, [0, 0, 2, 2], [0, 2, 0, 2]].any()


# ---- What is refused


def test_forms_of_rois() -> None:
    maps = np.random.default_rng(5).normal(size=(2, 3, 8, 9))
    rois = np.array(PLAIN)
    expected = roipool.roi_align_rotated(maps, rois, 2)
    got = roipool.roi_align_rotated(maps, rois[:, 1:], 2, batch_indices=rois[:, 0].astype(int))
    assert_same_bits(got, expected)
    per_image = [rois[rois[:, 0] == image, 1:] for image in (0, 1)]
    assert_same_bits(roipool.roi_align_rotated(maps, per_image, 2), expected[[0, 2, 1]])
    assert roipool.roi_align_rotated_backward_rois(
        np.empty((0, 3, 1, 1)), np.empty((0, 3, 8, 9)), []
    ).shape == (0, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rois": np.zeros((1, 5))}, "without it rois must have shape"),
        ({"rois": np.zeros((1, 4))}, r"rois must have shape \(K, 6\) or \(K, 5\)"),
        ({"angle_unit": "turns"}, "angle_unit must be 'radians' or 'degrees'"),
        ({"output_size": (65536, 65536)}, "output_size has 65536 x 65536 bins"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "features": np.zeros((1, 1, 4, 4)), "rois": np.zeros((1, 6)), "output_size": 2,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        roipool.roi_align_rotated(**{**arguments, **change})


def test_maps_with_too_many_cells() -> None:
    gradient, rois = np.zeros((0, 1, 1, 1), np.float32), np.zeros((0, 6))
    with pytest.raises(ValueError, match="input_shape has 65536 x 65536 cells"):
        roipool.roi_align_rotated_backward(gradient, rois, (1, 1, 65536, 65536))
