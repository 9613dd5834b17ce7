"""The assignment of boxes to the maps of a pyramid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.cases import maps
from _support.compare import assert_same_bits
from _support.loops import each

import roipool

from .front_end import Contract, Form, FrontEnd

SCALES = (0.5, 0.25, 0.125)
ROIS = np.array([[0, 1.3, 1, 20, 20], [1, 3, 4, 30.2, 31], [0, 2, 2, 6, 7]])


def pyramid(front_end: FrontEnd, dtype: str = "float64") -> list[Any]:
    """Return maps of three levels."""
    sides = (16, 8, 4)
    return [front_end.maps(maps((2, 3, side, side + 2)), Form(dtype)) for side in sides]


class Levels(Contract):
    """`assign_levels`, and levels by default."""

    @each(dtype=("float32", "float64"))
    def test_levels_are_those_of_numpy(self, front_end: FrontEnd, dtype: str) -> None:
        """Levels are computed from areas in float64, compiled or not."""
        table = np.random.default_rng(0).uniform(-50, 600, (200, 5)).astype(dtype)
        table[:3, 3] = np.nan, np.inf, 0
        below = np.nextafter(np.float32(224), np.float32(0))
        table[3:5, 1:] = [0, 0, below, below], [0, 0, 224, 224]
        table[5:8, 1:] = [0, 0, 112, 112], [0, 0, 223, 224], [0, 0, 500, 500]
        expected = roipool.assign_levels(table, 2, 5)
        assert expected[3] < expected[4]
        assert expected[5:8].tolist() == [1, 1, 3]
        compiled = front_end.compiled(lambda rois: roipool.assign_levels(rois, 2, 5))
        for boxes in map(front_end.array, (table, np.ascontiguousarray(table[:, 1:]))):
            assert_same_bits(front_end.numpy(roipool.assign_levels(boxes, 2, 5)), expected)
            assert_same_bits(front_end.numpy(compiled(boxes)), expected)

    def test_levels_by_size_are_the_default(self, front_end: FrontEnd) -> None:
        rois = front_end.array(ROIS * [1, 12, 12, 12, 12])
        levels = roipool.assign_levels(rois, 1, 3)
        assert len(set(front_end.numpy(levels).tolist())) > 1
        found, expected = (
            roipool.multilevel_roi_align(pyramid(front_end), rois, 2, SCALES, **more)
            for more in ({}, {"levels": levels})
        )
        assert_same_bits(front_end.numpy(found), front_end.numpy(expected))


class ErrorsOfLevels(Contract):
    """Wrong calls of `assign_levels`."""

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ((ROIS[:, :3], 2, 5), ValueError, "rois must have shape"),
            ((ROIS > 0, 2, 5), TypeError, "rois must hold real numbers"),
            ((ROIS, 5, 2), ValueError, "max_level must be at least"),
            ((ROIS, 2.5, 5), TypeError, "min_level must be an int"),
            ((ROIS, 2, 10**6), ValueError, "max_level must be from -100 to 100, got 1000000"),
            ((ROIS, 2, 5, 1e300), ValueError, "canonical_size must be from"),
        ],
    )
    def test_errors_of_levels(
        self, front_end: FrontEnd, arguments: Any, error: type[Exception], message: str
    ) -> None:
        rois, *options = arguments
        with pytest.raises(error, match=f"^assign_levels: {message}"):
            roipool.assign_levels(front_end.array(rois), *options)
