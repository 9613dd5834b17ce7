"""Fixtures of the command-line tests: each runs in an empty folder."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """End processes that a test has left behind, and fail the test."""
    before = _children()
    yield
    left = _children() - before
    for process in left:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    assert not left, f"processes were left: {sorted(left)}"


def _children() -> set[int]:
    """Return the child processes, on systems that list them."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= set(map(int, file.read_text().split()))
    return found
