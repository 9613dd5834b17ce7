"""The tests of another implementation that pytest makes for the fixture of `pytest_roipool`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from roipool.testing import NotConforming

from .diagnosis import diagnose
from .implementations import close
from .reports import ReportRequest

__all__ = ["parametrize", "run_checks"]

CALLS_PER_TEST = 20  # random calls
FIXTURE, MARK = "conforms", "roipool"


class _State:
    """Shared by the tests of a session: examiners, implementations' processes, and reports."""

    def __init__(self) -> None:
        self.examiners: dict[Any, Any] = {}
        self.processes: list[Any] = []
        self.reports: dict[Any, Any] = {}


_STATE = pytest.StashKey[_State]()
_SUMMARY = pytest.StashKey[str]()  # of a failed test: the rules that the implementation breaks


class _Session:
    """What a session does after tests of implementations: no session without them has it."""

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """End the processes of implementations."""
        for process in config.stash[_STATE].processes:
            close(process)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the broken rule into pytest's summary and the JUnit message."""
        report = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and _SUMMARY in item.stash:
            crash.message = item.stash[_SUMMARY]
        return report


def _begin(config: pytest.Config) -> None:
    """Prepare a session for tests of implementations."""
    if _STATE not in config.stash:
        config.stash[_STATE] = _State()
        config.pluginmanager.register(_Session())


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with the cases of the catalogue and with groups of random calls."""
    _begin(metafunc.config)
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or len(mark.args) != 1:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the fixture {FIXTURE!r} needs a mark such as "
            f'@pytest.mark.{MARK}("torchvision.roi_align")'
        )
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


def run_checks(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return the function that checks an implementation by the calls of one test."""
    plan, dtype, device, calls = request.param
    state = request.config.stash[_STATE]
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
    wrong = {outcome.name for outcome in outcomes if outcome.failures}
    diagnoses = [diagnosis for diagnosis in report.diagnoses if wrong & set(diagnosis.calls)]
    diagnoses = diagnoses or diagnose(examiner, outcomes, 0.0)
    return replace(report, outcomes=outcomes, diagnoses=diagnoses)
