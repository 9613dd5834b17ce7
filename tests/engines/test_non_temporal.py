"""Results written by non-temporal stores are bitwise identical to those written normally."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.catalogue import every_dtype, every_layout
from _support.compare import assert_same_bits
from roipool.verification.trials import Trial, large_trial, trials

from roipool import _cpu, _settings
from roipool.verification import groups

NEVER = 2**62


@pytest.fixture(autouse=True)
def same_settings_after() -> Iterator[None]:
    """Leave the limit and the instruction set as they were."""
    before = _cpu.instruction_set()
    yield
    _cpu.use_instruction_set(before)
    _cpu.use_non_temporal_stores(_settings.NON_TEMPORAL_BYTES)


def several() -> list[Trial]:
    """Return trials with channels in whole vectors, in parts of one, and one by one."""
    rng = np.random.default_rng(5)
    large = large_trial(rng)
    large = replace(large, rois=large.rois[:20], grad=large.grad[:20])
    few = [
        replace(large, maps=large.maps[:, :channels], grad=large.grad[:, :channels])
        for channels in (3, 21, 32)
    ]
    return [large, *few, *trials(rng)]


@every_layout
@every_dtype
@pytest.mark.parametrize("name", _cpu.instruction_sets())
def test_bitwise_identical(name: str, dtype: Any, layout: str) -> None:
    _cpu.use_instruction_set(name)
    device = groups.device("cpu")
    for trial in several():
        _cpu.use_non_temporal_stores(NEVER)
        expected = groups.compute(device, trial, np.dtype(dtype), layout)
        _cpu.use_non_temporal_stores(0)
        for which, result in groups.compute(device, trial, np.dtype(dtype), layout).items():
            assert_same_bits(result, expected[which])
