"""All instruction sets of this processor make the same decisions, with sums within rounding.

The last one, the baseline in most builds, is what all are compared with, itself too, so that these
tests pass in the same way on any machine; which sets were compared is in their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.catalogue import VARIANTS, Array, every_dtype, every_layout
from _support.compare import assert_close, assert_same_bits
from _support.loops import each
from _support.run_python import run_python

import roipool
from roipool import _cpu
from roipool.systems import SYSTEMS
from roipool.systems.case import Case
from roipool.verification.call import run
from roipool.verification.catalogue import ENTRIES, Entry

SETS = _cpu.instruction_sets()
FINITE = [entry for entry in ENTRIES if entry.finite]
MAXIMA = [name for name in VARIANTS if "argmax" in SYSTEMS[name].returns]
AVERAGES = [name for name in VARIANTS if name not in MAXIMA and SYSTEMS[name].samples != "points"]

every_set = pytest.mark.parametrize("name", SETS)


@pytest.fixture(autouse=True)
def same_set_after() -> Iterator[None]:
    """Restore the instruction set."""
    before = _cpu.instruction_set()
    yield
    _cpu.use_instruction_set(before)


@every_layout
@every_dtype
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_maxima_have_the_same_bits(entry: Entry, dtype: Any, layout: str) -> None:
    for case in calls(entry, MAXIMA, dtype, layout):
        _cpu.use_instruction_set(SETS[-1])
        expected = run(case, roipool)
        for name in SETS:
            _cpu.use_instruction_set(name)
            for which, result in run(case, roipool).items():
                assert_same_bits(result, expected[which])


def calls(entry: Entry, names: list[str], dtype: Any, layout: str) -> Iterator[Case]:
    for name in names:
        for _, case in entry.cases(name):
            yield replace(case, dtype=np.dtype(dtype).name, layout=layout)


@every_layout
@every_dtype
@pytest.mark.parametrize("entry", FINITE, ids=str)
@pytest.mark.thorough
def test_averages_are_within_rounding(entry: Entry, dtype: Any, layout: str) -> None:
    for case in calls(entry, AVERAGES, dtype, layout):
        operation = SYSTEMS[case.operation]._replace(box_gradient="", offset_gradient="")
        _cpu.use_instruction_set(SETS[-1])
        absolute = replace(case, maps=np.abs(case.maps), grad=np.abs(case.grad))
        expected, sizes = (run(one, roipool, operation) for one in (case, absolute))
        for name in SETS:
            _cpu.use_instruction_set(name)
            for which, result in run(case, roipool, operation).items():
                exact, size = (one[which].astype(np.float64) for one in (expected, sizes))
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
    case = Case(
        "roi_align",
        maps=rng.integers(-4, 5, (1, channels, 9, 9)).astype(np.float64),
        grad=rng.integers(-4, 5, (40, channels, 2, 4)).astype(np.float64),
        rois=np.column_stack([np.zeros(40), rng.integers(-16, 80, (40, 4)) / 8]),
        dtype=np.dtype(dtype).name,
        layout=layout,
        options={"spatial_scale": 1.0, "sampling_ratio": 2, "aligned": aligned},
    )
    _cpu.use_instruction_set(SETS[-1])
    expected = run(case, roipool)
    _cpu.use_instruction_set(name)
    found = run(case, roipool)
    for which in ("pooled", "gradient"):
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

    _cpu.use_instruction_set(SETS[-1])
    expected = gradients()
    _cpu.use_instruction_set(name)
    terms = 2 * np.abs(grad).sum(axis=(1, 2, 3))[:, None] * np.abs(maps).max()
    for result, exact, extent in zip(gradients(), expected, (1, 12), strict=True):
        assert_close(result, exact.astype(np.float64), extent * terms, ulps=1)


def test_the_last_set_is_the_baseline() -> None:
    assert SETS[-1] == "baseline" or len(SETS) == 1  # built for one: ROIPOOL_BUILD_ISA
    assert _cpu.instruction_set() == SETS[0]


def test_a_set_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=rf"'avx9'.*{SETS[-1]}"):
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
