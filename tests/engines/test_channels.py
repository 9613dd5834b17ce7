"""A channel has the same bits alone and beside any others, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from _support.catalogue import VARIANTS, both_layouts
from _support.compare import assert_same_bits
from _support.loops import each

import roipool
from roipool import _cpu
from roipool.systems import SYSTEMS
from roipool.systems.case import Case
from roipool.verification.call import Results, run
from roipool.verification.catalogue import Entry

# Vectors have 8 or 16 channels, and a few channels at the end are computed one by one.
MOST = 65
COUNTS = [
    pytest.param((1, 2, 7, 9, 15, 16, 17, 33, 64), id="some"),
    pytest.param(range(1, MOST), marks=pytest.mark.thorough, id="all"),
]
MAPS = (2, 1, 9, 11)
RNG = np.random.default_rng(0)
# Boxes of about a cell and of many, so that bins have few taps and many.
ROIS = [
    [int(image), x, y, x + width, y + height]
    for image, x, y, width, height in zip(
        RNG.integers(0, 2, 8),
        RNG.uniform(-2, 8, 8),
        RNG.uniform(-2, 8, 8),
        RNG.uniform(0.5, 10, 8),
        RNG.uniform(0.5, 10, 8),
        strict=True,
    )
]
ENTRY = Entry("channels", ROIS, MAPS, (2, 3), samplings=(0, 1, 2), alignments=(True,))


@pytest.fixture(autouse=True)
def same_set_after() -> Iterator[None]:
    """Restore the instruction set."""
    before = _cpu.instruction_set()
    yield
    _cpu.use_instruction_set(before)


def with_channels(case: Case, channels: int) -> Case:
    """Return a case with random values in more channels."""
    rng = np.random.default_rng(1)
    maps, grad = case.maps.shape, case.grad.shape
    return replace(
        case,
        maps=rng.normal(size=(maps[0], channels * maps[1], *maps[2:])).astype(np.float16),
        grad=rng.normal(size=(grad[0], channels, *grad[2:])).astype(np.float16),
    )


def results_of(case: Case, first: int, last: int) -> Results:
    """Return what does not depend on all channels together: pooled values and map gradients."""
    operation = SYSTEMS[case.operation]._replace(box_gradient="", offset_gradient="")
    groups = case.maps.shape[1] // case.grad.shape[1]
    maps, grad = case.maps[:, first * groups : last * groups], case.grad[:, first:last]
    return run(replace(case, maps=maps, grad=grad), roipool, operation)


@both_layouts
@each(dtype=("float32", "float64", "bfloat16", "float16"))
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("instruction_set", _cpu.instruction_sets())
@pytest.mark.parametrize("counts", COUNTS)
def test_counts(
    instruction_set: str, name: str, counts: Sequence[int], dtype: str, layout: str
) -> None:
    _cpu.use_instruction_set(instruction_set)
    for _, one in ENTRY.cases(name):
        case = replace(with_channels(one, MOST), dtype=dtype, layout=layout)
        together = results_of(case, 0, MOST)
        for channels in counts:
            # Odd numbers of the last channels: they lie at other places among their neighbours.
            first = MOST - channels if channels % 2 else 0
            for which, alone in results_of(case, first, first + channels).items():
                before = first * (alone.shape[1] // channels)
                expected = together[which][:, before : before + alone.shape[1]]
                assert_same_bits(alone, np.ascontiguousarray(expected))
