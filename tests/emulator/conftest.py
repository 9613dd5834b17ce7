"""CuPy for tests on the simulator; those of the emulator alone have their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from _support import emulator, simt


@pytest.fixture
def cupy() -> Iterator[Any]:
    """The emulator's CuPy, whose kernels the simulator runs."""
    if (missing := emulator.why_not() or simt.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as module, simt.simulated():
        yield module
