"""Every instruction set that this processor has: the same decisions, and sums within rounding.

The baseline is compared too, so that these tests pass in the same way on any machine; which sets
were compared is in their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from _support.catalogue import (
    AVERAGES,
    CASES,
    Array,
    Case,
    every_dtype,
    every_layout,
    in_layout,
    inputs,
    shape_in_layout,
)
from _support.compare import assert_close, assert_same_bits
from _support.pairwise import each
from _support.run_python import run_python

import roipool
from roipool import _cpu

SETS = _cpu.instruction_sets()
FINITE = [case for case in CASES if case.finite]

every_set = pytest.mark.parametrize("name", SETS)


@pytest.fixture(autouse=True)
def same_set_after() -> Iterator[None]:
    """Leave the instruction set as it was."""
    before = _cpu.instruction_set()
    yield
    _cpu.use_instruction_set(before)


def maxima(case: Case, dtype: Any, layout: str) -> dict[str, Array]:
    """Return values, argmax and gradients of both maxima."""
    maps, grad = (in_layout(values.astype(dtype), layout) for values in inputs(case))
    rois, form = case.table(), {"layout": layout}
    pool, cells = roipool.roi_pool(
        maps, rois, case.size, case.scale, return_argmax=True, layout=layout
    )
    options: dict[str, Any] = {"aligned": case.aligned, "mode": "max", "layout": layout}
    place = (case.scale, case.sampling)
    greatest, samples = roipool.roi_align(
        maps, rois, case.size, *place, return_argmax=True, **options
    )
    return {
        "pool": pool,
        "pool argmax": cells,
        "pool gradient": roipool.roi_pool_backward(grad, cells, rois, maps.shape, **form),
        "maximum": greatest,
        "argmax": samples,
        "gradient": roipool.roi_align_backward(
            grad, rois, maps.shape, *place, argmax=samples, **options
        ),
    }


@every_layout
@every_dtype
@pytest.mark.parametrize("case", CASES, ids=str)
def test_maxima_have_the_same_bits(case: Case, dtype: Any, layout: str) -> None:
    _cpu.use_instruction_set("baseline")
    expected = maxima(case, dtype, layout)
    for name in SETS:
        _cpu.use_instruction_set(name)
        for which, result in maxima(case, dtype, layout).items():
            assert_same_bits(result, expected[which])


def averages(case: Case, maps: Array, grad: Array, layout: str) -> dict[str, Array]:
    """Return values and gradients of every average that plans rows and columns apart."""
    found = {}
    for name, op in AVERAGES.items():
        found[name] = op.forward(roipool, maps, case, np.asarray, layout=layout)
        found[f"{name}, gradient"] = op.backward(
            roipool, grad, maps.shape, case, np.asarray, layout=layout
        )
    return found


@every_layout
@every_dtype
@pytest.mark.parametrize("case", FINITE, ids=str)
@every_set
@pytest.mark.thorough
def test_averages_are_within_rounding(name: str, case: Case, dtype: Any, layout: str) -> None:
    maps, grad = (in_layout(values.astype(dtype), layout) for values in inputs(case))
    _cpu.use_instruction_set("baseline")
    expected = averages(case, maps, grad, layout)
    terms = averages(case, np.abs(maps), np.abs(grad), layout)
    _cpu.use_instruction_set(name)
    for which, result in averages(case, maps, grad, layout).items():
        exact, size = (array[which].astype(np.float64) for array in (expected, terms))
        assert_close(result, exact, size, roundings=2)


@every_layout
@every_dtype
@each(aligned=[True, False], channels=[1, 5, 16, 33])
@every_set
def test_exact_sums_have_the_same_bits(
    name: str, channels: int, aligned: bool, dtype: Any, layout: str
) -> None:
    # Whole pixels, boxes in eighths and powers of two: nothing is rounded on any instruction set,
    # so any difference would be another decision.
    rng = np.random.default_rng(channels)
    corners = rng.integers(-16, 80, (40, 4)) / 8
    rois = [(0, *row) for row in corners]
    case = Case("exact", rois, size=(2, 4), sampling=2, aligned=aligned)
    maps = in_layout(rng.integers(-4, 5, (1, channels, 9, 9)).astype(dtype), layout)
    grad = rng.integers(-4, 5, shape_in_layout((40, channels, 2, 4), layout)).astype(dtype)
    _cpu.use_instruction_set("baseline")
    expected = averages(case, maps, grad, layout)
    _cpu.use_instruction_set(name)
    found = averages(case, maps, grad, layout)
    for which in ("roi_align, avg", "roi_align, avg, gradient"):
        assert_same_bits(found[which], expected[which])


@every_set
def test_box_gradients_are_within_rounding(name: str) -> None:
    rng = np.random.default_rng(3)
    maps = rng.normal(size=(2, 21, 12, 13)).astype(np.float32)
    rois = np.column_stack([rng.integers(0, 2, 30), rng.uniform(-2, 14, (30, 4))])
    grad = rng.normal(size=(30, 21, 3, 2)).astype(np.float32)

    def gradients() -> tuple[Array, Array]:
        boxes, images = rois[:, 1:] / 12, rois[:, 0].astype(int)
        return (
            roipool.roi_align_backward_rois(grad, maps, rois),
            roipool.crop_and_resize_backward_boxes(grad, maps, boxes, images),
        )

    _cpu.use_instruction_set("baseline")
    expected = gradients()
    _cpu.use_instruction_set(name)
    terms = 2 * np.abs(grad).sum(axis=(1, 2, 3))[:, None] * np.abs(maps).max()
    for result, exact, extent in zip(gradients(), expected, (1, 12), strict=True):
        assert_close(result, exact.astype(np.float64), extent * terms, ulps=1)


def test_the_last_set_is_the_baseline() -> None:
    assert SETS[-1] == "baseline"
    assert _cpu.instruction_set() == SETS[0]


def test_a_set_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"'avx9'.*baseline"):
        _cpu.use_instruction_set("avx9")
    assert _cpu.instruction_set() == SETS[0]


@every_set
def test_environment_chooses(name: str) -> None:
    code = "from roipool import _cpu; print(_cpu.instruction_set())"
    result = run_python(code, ROIPOOL_ISA=name)
    assert result.stdout.strip() == name, result.stderr


def test_environment_with_a_set_that_is_not_there() -> None:
    code = "import numpy as np, roipool; roipool.roi_pool(np.ones((1, 1, 3, 3)), [[0] * 5], 1)"
    result = run_python(code, ROIPOOL_ISA="avx9")
    assert result.stderr.splitlines()[-1].startswith("ValueError: ROIPOOL_ISA is 'avx9'")
