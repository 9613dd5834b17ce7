"""Pytest plugin: parametrizes the test of another implementation with roipool's test cases.

Every pytest in an environment with roipool imports this plugin, so it imports roipool only in tests
that use its fixture. ``docs/testing.md`` shows how to use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

FIXTURE, MARK = "conforms", "roipool"
CALLS_PER_TEST = 20  # random calls

_HELP = (
    f"{MARK}(semantics, **options): check the implementation that the test passes to the fixture "
    f"`{FIXTURE}` with roipool's catalogue and random calls; options as for "
    "roipool.testing.assert_conforms"
)


class _State:
    """Shared by the tests of a session: examiners, implementations' processes, and reports."""

    def __init__(self) -> None:
        self.examiners: dict[Any, Any] = {}
        self.processes: list[Any] = []
        self.reports: dict[Any, Any] = {}


_STATE = pytest.StashKey[_State]()
_SUMMARY = pytest.StashKey[str]()  # of a failed test: the rules that the implementation breaks


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", _HELP)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes of implementations."""
    state = config.stash.get(_STATE, None)
    if state is not None and state.processes:
        from roipool.tools.conformance.implementations import close

        for process in state.processes:
            close(process)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put the broken rule into pytest's summary and the JUnit message."""
    outcome: Any = yield
    crash = getattr(outcome.get_result().longrepr, "reprcrash", None)
    if crash is not None and _SUMMARY in item.stash:
        crash.message = item.stash[_SUMMARY]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with the cases of the catalogue and with groups of random calls."""
    if FIXTURE not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or len(mark.args) != 1:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the fixture {FIXTURE!r} needs a mark such as "
            f'@pytest.mark.{MARK}("torchvision.roi_align")'
        )
    from roipool.tools.conformance.reports import ReportRequest

    options = {"random_calls": 100, **mark.kwargs}
    dtypes, devices = (
        tuple(options.pop(name, (default,)))
        for name, default in (("dtypes", "float32"), ("devices", "cpu"))
    )
    try:
        request = ReportRequest("", mark.args[0], dtypes=dtypes, devices=devices, **options)
        request.check()
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: {error}") from None
    cases, ids = [], []
    for device in devices:
        for dtype in dtypes:
            for name, calls in _groups(request.plan(dtype).calls()):
                cases.append((request, dtype, device, calls))
                ids.append(f"{name}-{dtype}-{device}")
    metafunc.parametrize(FIXTURE, cases, ids=ids, indirect=True)


def _groups(calls: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Group the variants of each case, and `CALLS_PER_TEST` random calls at a time."""
    groups: dict[str, list[tuple[str, Any]]] = {}
    for name, case in calls:
        group = name.partition(", ")[0]
        if name.startswith("random call "):
            first = int(name.split()[-1]) // CALLS_PER_TEST * CALLS_PER_TEST
            group = f"random calls {first} to {first + CALLS_PER_TEST - 1}"
        groups.setdefault(group, []).append((name, case))
    yield from groups.items()


@pytest.fixture
def conforms(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Check an implementation: ``conforms(function, backward=..., arrays=...)``."""
    from dataclasses import replace

    from roipool.testing import NotConforming

    plan, dtype, device, calls = request.param
    state = request.config.stash.setdefault(_STATE, _State())
    function = getattr(request.node, "originalname", None) or request.node.name
    place = f"{request.node.path}::{function}"

    def check(
        implementation: Any,
        backward: Any = None,
        *,
        backward_boxes: Any = None,
        arrays: str = "numpy",
    ) -> None:
        __tracebackhide__ = True
        whole = replace(
            plan,
            implementation=implementation,
            backward=backward,
            backward_boxes=backward_boxes,
            arrays=arrays,
            dtypes=(dtype,),
            devices=(device,),
        )
        key = (place, implementation, backward, backward_boxes, arrays, dtype, device)
        if not isinstance(implementation, str) or key not in state.examiners:
            examiner, called = whole.examiner(dtype, device)
            if isinstance(implementation, str):
                state.examiners[key] = examiner
                state.processes.append(called)
        else:
            examiner = state.examiners[key]
        outcomes = [examiner.examine(name, case) for name, case in calls]
        if not any(outcome.failures for outcome in outcomes):
            return
        names = tuple(map(_name_of, (implementation, backward, backward_boxes)))
        named = (place, names, arrays, dtype, device)
        if named not in state.reports:
            (state.reports[named],) = whole.reports()
        report = _part(state.reports[named], examiner, outcomes)
        words = (diagnosis.words for diagnosis in report.diagnoses)
        request.node.stash[_SUMMARY] = "; ".join(dict.fromkeys(words))
        raise NotConforming([report]) from None

    return check


def _name_of(function: Any) -> str:
    """Return a function's qualified name, which is the same for closures made in each test."""
    if function is None or isinstance(function, str):
        return str(function)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _part(report: Any, examiner: Any, outcomes: list[Any]) -> Any:
    """Return the part of a function's report that concerns the calls of one test.

    A few calls may match several rules by chance, so the diagnoses of all calls are preferred; a
    failure that did not occur there is diagnosed on its own.
    """
    from dataclasses import replace

    from roipool.tools.conformance.diagnosis import diagnose

    wrong = {outcome.name for outcome in outcomes if outcome.failures}
    diagnoses = [diagnosis for diagnosis in report.diagnoses if wrong & set(diagnosis.calls)]
    diagnoses = diagnoses or diagnose(examiner, outcomes, 0.0)
    return replace(report, outcomes=outcomes, diagnoses=diagnoses)
