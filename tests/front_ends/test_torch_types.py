"""The stub of roipool.torch has the names and arguments that the package has."""

from __future__ import annotations

from _support.stubs import check_stub

import roipool.torch


def test_the_stub() -> None:
    check_stub(roipool.torch)
