"""The calls in every row of docs/migration.md give the same numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from _support.migration import PAGE, ROWS, code, value

from roipool import compat


@pytest.mark.parametrize(("theirs", "same", "ours"), ROWS, ids=[row[1][:60] for row in ROWS])
def test_roipool_gives_the_same(theirs: str, same: str, ours: str) -> None:
    result = value(same)
    assert result.ndim == (5 if "_3d(" in same else 4)
    assert len(result) == 7
    call = code(ours)
    if call is None:
        assert ours.startswith("none: ")
        return
    np.testing.assert_allclose(value(call), result, rtol=1e-5, atol=1e-5)


def test_the_page_has_every_system() -> None:
    used = {match for row in ROWS for match in re.findall(r"compat\.(\w+)", row[1])}
    assert used == set(compat.__all__)
    assert len(ROWS) == PAGE.count("`compat.")
