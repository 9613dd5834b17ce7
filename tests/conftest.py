"""Backends, and the mark that keeps GPU cases visible where there is no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _support import emulator
from _support.backends import Backend

import roipool

GPUS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=["cpu", *GPUS])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each backend in turn."""
    with available(request.param) as found:
        yield found


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The CUDA backend, emulated and on a GPU."""
    with available(request.param) as found:
        yield found


@pytest.fixture
def same_threads_after() -> Iterator[None]:
    """Leave the number of threads as it was."""
    before = roipool.get_num_threads()
    yield
    roipool.set_num_threads(before)


@contextmanager
def available(name: str) -> Iterator[Backend]:
    """Make a backend available, or skip the test."""
    if name != "emulator":
        yield Backend(name)
        return
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active():
        yield Backend("emulator")


def why_no_gpu() -> str | None:
    """Return what is missing for the GPU cases, or None."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 - CuPy raises several kinds
        return f"no CUDA device through CuPy: {error}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU cases where they cannot run, each with the reason; or let them fail there."""
    reason = None if os.environ.get("ROIPOOL_REQUIRE_GPU") else why_no_gpu()
    for item in items:
        if reason and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
