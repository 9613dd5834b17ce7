"""Position-sensitive systems of other libraries against what their releases answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.golden_data import recorded

from roipool.compat import openvino
from roipool.compat._openvino_pooling import PSMode


def assert_same(backend: Backend, found: Any, expected: Any, maps: Any) -> int:
    """Compare, and count the numbers that are not 0; sums may be in another order."""
    largest = float(np.abs(maps).max())
    error = np.abs(backend.to_host(found) - expected).max(initial=0)
    assert error <= 4 * np.finfo(expected.dtype).eps * largest  # another cell is a larger error
    return int(np.count_nonzero(expected))


@pytest.mark.parametrize("mode", ["average", "bilinear"])
def test_openvino_answers_the_same(backend: Backend, mode: PSMode) -> None:
    values = 0
    for case in recorded("openvino_ps"):
        channels, group, scale, *parts = case["options"].tolist()
        maps, rois = case[f"{mode}_maps"], case["rois" if mode == "average" else "fractions"]
        options = int(channels), int(group), scale, *map(int, parts)
        arrays = backend.to_device(maps), backend.to_device(rois)
        pooled = openvino.PSROIPooling(*arrays, *options, mode)
        values += assert_same(backend, pooled, case[mode], maps)
    assert values > 500
