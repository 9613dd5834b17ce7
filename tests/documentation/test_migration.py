"""The calls in every row of docs/migration.md give the same numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from _support.migration import PAGE, ROWS, code, value

from roipool import compat

# Dimensions of results by a part of the call; of all others four.
DIMENSIONS = {
    "_3d(": 5,
    "unmold_mask(": 2,
    "detectron2.paste_masks_in_image(": 3,
    "project_masks_on_boxes(": 3,
    "mmdet.": 3,
}


def dimensions(call: str) -> int:
    return next((number for part, number in DIMENSIONS.items() if part in call), 4)


@pytest.mark.parametrize(("theirs", "same", "ours"), ROWS, ids=[row[1][:60] for row in ROWS])
def test_roipool_gives_the_same(theirs: str, same: str, ours: str) -> None:
    result = value(same)
    assert result.ndim == dimensions(same)
    assert len(result) == (200 if result.ndim == 2 else 7)
    call = code(ours)
    if call is None:
        assert ours.startswith("none: ")
        return
    np.testing.assert_allclose(value(call), result, rtol=1e-5, atol=1e-5)


def test_the_page_has_every_system() -> None:
    used = {match for row in ROWS for match in re.findall(r"compat\.(\w+)", row[1])}
    assert used == set(compat.__all__)
    assert len(ROWS) == PAGE.count("`compat.")
