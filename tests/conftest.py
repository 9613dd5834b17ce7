"""Fixtures of backends, and the selection and distribution of tests."""

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

# ---- Tests of front ends: only for installed libraries

FRONT_ENDS = "array_api_strict dask jax mlx paddle ray tensorflow torch torchvision".split()
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
    """Use one thread by default: maps are small, and several processes share the processors."""
    roipool.set_num_threads(1)


@pytest.fixture
def same_threads_after() -> Iterator[None]:
    """Restore the number of threads."""
    before = roipool.get_num_threads()
    yield
    roipool.set_num_threads(before)


@contextmanager
def available(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Make a backend available, or skip the test."""
    options = request.config.option
    found = Backend(request.param, options.everything, options.thorough)
    if found.name != "emulator":
        yield found
        return
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active():
        yield found


# ---- Options and processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select more tests (see docs/internals/tests.md)."""
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also run slow tests and tests of the project's tools, as CI does",
    )
    parser.addoption(
        "--everything",
        action="store_true",
        help="run everything that this machine can: all combinations, tests that need 9 GB",
    )


def pytest_configure() -> None:
    """Disable OpenBLAS's threads in processes started by tests, which multiply no matrices."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite in one process per processor, like ``-n auto`` of pytest-xdist.

    A process without tests takes over those that wait behind a long one in another.
    """
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    one_of_several = hasattr(config, "workerinput")
    if not whole or one_of_several or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None:
        config.option.numprocesses = "auto"
    if config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name missing libraries, and suggest pytest-xdist."""
    lines = [f"no tests of {library}, which is not installed" for library in ABSENT]
    if not config.pluginmanager.hasplugin("xdist") and (os.cpu_count() or 1) > 1:
        lines.append("one process; install pytest-xdist (extra `test`) for several")
    return lines


def one_after_the_other(items: list[pytest.Item]) -> None:
    """Sort a case's backends together, so that a process computes the oracle's answer once."""
    places: dict[str, int] = {}

    def place(item: pytest.Item) -> int:
        case = re.sub(r"\[(cpu|emulator|cuda)\b-?", "[", item.nodeid)
        return places.setdefault(case, len(places))

    items.sort(key=place)


# ---- Deselected tests are counted in one line, not reported as skips

OPTIONS = {  # the option that runs the tests with a mark
    "gpu": "-m gpu",
    "thorough": "--thorough",
    "everything": "--everything",
}
LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests, and deselect expensive ones; ``-m "not gpu"`` deselects GPU cases."""
    one_after_the_other(items)
    everything = config.getoption("everything")
    asked = {"everything": everything, "thorough": everything or config.getoption("thorough")}
    unasked = [mark for mark, is_asked in asked.items() if not is_asked]
    left_out = {item for item in items if any(map(item.get_closest_marker, unasked))}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the deselected tests by mark."""
    counts = items[0].config.stash.setdefault(LEFT_OUT, dict.fromkeys(OPTIONS, 0))
    for item in items:
        for mark in OPTIONS:
            counts[mark] += item.get_closest_marker(mark) is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts to the reporting process."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the counts, which are equal in all processes; a crashed process sends none."""
    if counts := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts and the options that run these tests."""
    counts = terminalreporter.config.stash.get(LEFT_OUT, {})
    lines = [f"{count} need `pytest {OPTIONS[mark]}`" for mark, count in counts.items() if count]
    if lines:
        terminalreporter.write_line(f"cases left out: {', '.join(lines)}")
