"""The stub of roipool.dask has the package's names and arguments."""

from __future__ import annotations

import pytest
from _support.stubs import check_stub

dask = pytest.importorskip("roipool.dask")


def test_the_stub() -> None:
    check_stub(dask)
