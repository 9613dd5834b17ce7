"""The site shows a call of every operation and of every system that can be compared."""

from __future__ import annotations

import re

import numpy as np
import pytest
from _extension import calls, sampling
from _support.sources import SOURCES

from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS
from roipool.tools.compare.systems import SYSTEMS


def test_none_is_missing() -> None:
    core = {f"roipool.{name}" for name in OPS}
    assert core | set(SYSTEMS) <= set(calls.CALLS), (
        "no call to show: add `example` to the Compared of the row in roipool/systems/FRAMEWORK.py"
    )


@pytest.mark.parametrize("name", [*OPS, *PYRAMID_OPS, *VOLUME_OPS])
def test_tables_name_every_operation(name: str) -> None:
    """Those with words that no program knows; cells of the last are the front ends' tests."""
    for page in ("docs/which-operation.md", "docs/operations/index.md"):
        text = (SOURCES / page).read_text(encoding="utf-8")
        assert re.search(rf"^\|.*`{name}[`(]", text, re.MULTILINE), page
    assert f"`{name}`" in (SOURCES / "README.md").read_text(encoding="utf-8")
    tables = (SOURCES / "docs" / "frameworks.md").read_text(encoding="utf-8").split(": begin -->")
    for table in tables[1:]:
        assert f"| `{name}`, " in table.partition(": end -->")[0], table


@pytest.mark.parametrize("name", calls.CALLS)
def test_samples_have_the_weights_that_are_drawn(name: str) -> None:
    """Where it is an average, weights and samples have one centre of gravity; they add up to 1."""
    seen = sampling.sampling(name)
    assert (seen.weights >= 0).all()
    for weights, positions in zip(seen.weights, seen.positions, strict=True):
        assert weights.any()
        if np.isclose(weights.sum(), 1) and positions:
            rows, columns = np.mgrid[: sampling.HEIGHT, : sampling.WIDTH]
            centre = (rows * weights).sum(), (columns * weights).sum()
            np.testing.assert_allclose(np.mean(positions, axis=0), centre, rtol=1e-5)


def test_a_picture_is_small_and_whole() -> None:
    for name in calls.CALLS:
        drawn = sampling.picture(name)
        assert drawn.startswith("<svg ")
        assert drawn.endswith("</svg>\n")
        assert len(drawn) < 30_000
