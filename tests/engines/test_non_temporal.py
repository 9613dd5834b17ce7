"""Results written by non-temporal stores are bitwise identical to those written normally."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.catalogue import every_dtype, every_layout
from _support.compare import assert_same_bits
from _support.loops import each

import roipool
from roipool import _cpu, _settings
from roipool.systems.case import Case
from roipool.systems.core import VARIANTS
from roipool.verification.call import run
from roipool.verification.catalogue import ENTRIES, large_entry

NEVER = 2**62


@pytest.fixture(autouse=True)
def same_settings_after() -> Iterator[None]:
    """Restore the limit and the instruction set."""
    before = _cpu.instruction_set()
    yield
    _cpu.use_instruction_set(before)
    _cpu.use_non_temporal_stores(_settings.NON_TEMPORAL_BYTES)


def several(name: str) -> list[Case]:
    """Return calls with channels in whole vectors, in parts of a vector, and one by one."""
    large = large_entry(np.random.default_rng(5))
    large = replace(large, rois=large.rois[:20])
    entries = [replace(large, shape=(2, channels, 40, 50)) for channels in (3, 21, 32, 37)]
    few = [entry for entry in ENTRIES if entry.name in ("half outside", "33 channels", "ties")]
    return [case for entry in (*entries, *few) for _, case in entry.cases(name, most_work=math.inf)]


@pytest.mark.thorough  # random calls compare some
@every_layout
@every_dtype
@each(operation=list(VARIANTS))
@pytest.mark.parametrize("name", _cpu.instruction_sets())
def test_bitwise_identical(name: str, operation: str, dtype: Any, layout: str) -> None:
    _cpu.use_instruction_set(name)
    for case in several(operation):
        case = replace(case, dtype=np.dtype(dtype).name, layout=layout)
        _cpu.use_non_temporal_stores(NEVER)
        expected = run(case, roipool)
        _cpu.use_non_temporal_stores(0)
        for which, result in run(case, roipool).items():
            assert_same_bits(result, expected[which])
