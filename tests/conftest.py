"""Backends as fixtures, and how the suite runs: in several processes, GPU cases only if asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _support import emulator
from _support.backends import Backend

import roipool

GPUS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]


# ---- Fixtures


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


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Use one thread: maps are small, and processes share the processors; tests say otherwise."""
    roipool.set_num_threads(1)


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


# ---- Several processes


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite in a process per processor, as ``-n auto`` of pytest-xdist does."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    one_of_several = hasattr(config, "workerinput")
    if not whole or one_of_several or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None:
        config.option.numprocesses = "auto"


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say how it would be faster."""
    if config.pluginmanager.hasplugin("xdist") or (os.cpu_count() or 1) == 1:
        return None
    return "one process: with pytest-xdist (of the extra `test`) there would be several"


# ---- GPU cases left out by "not gpu" in pyproject.toml, in one line

LEFT_OUT = pytest.StashKey[int]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the GPU cases among the items left out."""
    for item in items:
        if item.get_closest_marker("gpu"):
            item.config.stash[LEFT_OUT] = item.config.stash.get(LEFT_OUT, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that reports, if this is not the one."""
    told: dict[str, int] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["gpu_cases_left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear it. Every process leaves out the same items."""
    told = getattr(node, "workeroutput", {})  # a process that crashed says nothing
    node.config.stash[LEFT_OUT] = told.get("gpu_cases_left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many there are, and how to run them."""
    if left_out := terminalreporter.config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{left_out} GPU cases were left out: `pytest -m gpu` runs them"
        )
