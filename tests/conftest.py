"""Backends as fixtures, and how the suite runs: in several processes, GPU cases only if asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
from _support import emulator
from _support.backends import GPUS, Backend

import roipool

# ---- Tests of front ends, for libraries that are installed

FRONT_ENDS = "array_api_strict dask jax paddle ray tensorflow torch torchvision".split()
ABSENT = [library for library in FRONT_ENDS if find_spec(library) is None]
collect_ignore_glob = [f"front_ends/test_{library}*.py" for library in ABSENT]


# ---- Fixtures


@pytest.fixture(params=["cpu", *GPUS])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each backend in turn."""
    with available(request) as found:
        yield found


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The CUDA backend, emulated and on a GPU."""
    with available(request) as found:
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
def available(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Make a backend available, or skip the test."""
    found = Backend(request.param, request.config.getoption("everything"))
    if found.name != "emulator":
        yield found
        return
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active():
        yield found


# ---- What runs, and in which processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that leave out less (see docs/internals/tests.md)."""
    parser.addoption(
        "--thorough",
        action="store_true",
        help="run what CI runs besides: tests of the project's tools, and what takes long",
    )
    parser.addoption(
        "--everything",
        action="store_true",
        help="leave out nothing that this machine can run: full products, tests that fill 9 GB",
    )


def pytest_configure() -> None:
    """Spare the processes that tests start OpenBLAS's threads: none multiplies matrices."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite in a process per processor, as ``-n auto`` of pytest-xdist does."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    one_of_several = hasattr(config, "workerinput")
    if not whole or one_of_several or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None:
        config.option.numprocesses = "auto"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is not there, and how it would be faster."""
    lines = [f"no tests of arrays of {library}, which is not installed" for library in ABSENT]
    if not config.pluginmanager.hasplugin("xdist") and (os.cpu_count() or 1) > 1:
        lines.append("one process: with pytest-xdist (of the extra `test`) there would be several")
    return lines


def one_after_the_other(items: list[pytest.Item]) -> None:
    """Let a case's backends follow each other: a process then computes the oracle's answer once."""
    places: dict[str, int] = {}

    def place(item: pytest.Item) -> int:
        case = re.sub(r"\[(cpu|emulator|cuda)\b-?", "[", item.nodeid)
        return places.setdefault(case, len(places))

    items.sort(key=place)


# ---- What is left out is no skip: it is counted, in one line

WAYS = {  # mark, and how to run what has it
    "gpu": "-m gpu",
    "thorough": "--thorough",
    "everything": "--everything",
}
LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order cases, and leave out what needs much; ``-m "not gpu"`` leaves out GPU cases."""
    one_after_the_other(items)
    everything = config.getoption("everything")
    asked = {"everything": everything, "thorough": everything or config.getoption("thorough")}
    unasked = [mark for mark, is_asked in asked.items() if not is_asked]
    left_out = {item for item in items if any(map(item.get_closest_marker, unasked))}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the items left out, by mark."""
    counts = items[0].config.stash.setdefault(LEFT_OUT, dict.fromkeys(WAYS, 0))
    for item in items:
        for mark in WAYS:
            counts[mark] += item.get_closest_marker(mark) is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that reports, if this is not the one."""
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear it. Every process leaves out the same items; one that crashed says nothing."""
    if told := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many there are, and how to run them."""
    counts = terminalreporter.config.stash.get(LEFT_OUT, {})
    told = [f"{count} need `pytest {WAYS[mark]}`" for mark, count in counts.items() if count]
    if told:
        terminalreporter.write_line(f"cases left out: {', '.join(told)}")
