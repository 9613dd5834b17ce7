"""The stub of roipool.dask has the names and arguments that the package has."""

from __future__ import annotations

import pytest
from _support.stubs import check_stub

dask = pytest.importorskip("roipool.dask")


def test_the_stub() -> None:
    check_stub(dask)
