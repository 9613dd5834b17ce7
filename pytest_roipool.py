"""A plugin of pytest: a test of somebody else's implementation becomes a test for every call.

It is imported by every pytest beside an installed roipool, and so imports roipool only in tests
that ask for it. ``docs/testing.md`` shows how it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

FIXTURE, MARK = "conforms", "roipool"
AT_ONCE = 20  # random calls of a test
DIAGNOSED = 5  # failures of a function whose rules are sought
SECONDS = 2.0  # that making a call small may take

_HELP = (
    f"{MARK}(semantics, **options): call the implementation that the test gives to the fixture "
    f"`{FIXTURE}` with roipool's catalogue and random calls; the options of "
    "roipool.testing.assert_conforms"
)


class _State:
    """What the tests of a session share: implementations in processes, and failures counted."""

    def __init__(self) -> None:
        self.examiners: dict[Any, Any] = {}
        self.processes: list[Any] = []
        self.failures: dict[str, int] = {}


_STATE = pytest.StashKey[_State]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _HELP)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End processes of implementations."""
    state = config.stash.get(_STATE, None)
    if state is not None and state.processes:
        from roipool.tools.conformance.implementations import close

        for process in state.processes:
            close(process)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case of the catalogue, and of some random calls at a time."""
    if FIXTURE not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or len(mark.args) != 1:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the fixture {FIXTURE!r} needs a mark such as "
            f'@pytest.mark.{MARK}("torchvision.roi_align")'
        )
    from roipool.tools.conformance.reports import Request

    given = {"random_calls": 100, **mark.kwargs}
    dtypes, devices = (tuple(given.pop(name, (usual,))) for name, usual in
                       (("dtypes", "float32"), ("devices", "cpu")))  # fmt: skip
    try:
        request = Request("", mark.args[0], dtypes=dtypes, devices=devices, **given)
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
    """Yield the variants of a case together, and some random calls at a time."""
    groups: dict[str, list[tuple[str, Any]]] = {}
    for name, case in calls:
        group = name.partition(", ")[0]
        if name.startswith("random call "):
            first = int(name.split()[-1]) // AT_ONCE * AT_ONCE
            group = f"random calls {first} to {first + AT_ONCE - 1}"
        groups.setdefault(group, []).append((name, case))
    yield from groups.items()


@pytest.fixture
def conforms(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Check an implementation: ``conforms(function, backward=..., arrays=...)``."""
    from dataclasses import replace

    from roipool.testing import NotConforming
    from roipool.tools.conformance.diagnosis import diagnose
    from roipool.tools.conformance.reports import Report

    plan, dtype, device, calls = request.param
    state = request.config.stash.setdefault(_STATE, _State())
    function = getattr(request.node, "originalname", None) or request.node.name
    place = f"{request.node.path}::{function}"

    def check(
        implementation: Any, backward: Any = None, *, backward_boxes: Any = None,
        arrays: str = "numpy",
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        whole = replace(
            plan, implementation=implementation, backward=backward, backward_boxes=backward_boxes,
            arrays=arrays,
        )  # fmt: skip
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
        state.failures[place] = state.failures.get(place, 0) + 1
        if state.failures[place] > DIAGNOSED:
            told = [f"{one.name}: {finding.what}: {finding.comparison.problem}"
                    for one in outcomes for finding in one.failures]  # fmt: skip
            pytest.fail("\n".join(told), pytrace=False)
        found = diagnose(examiner, outcomes, SECONDS)
        raise NotConforming(
            [Report(whole.name, whole.semantics, dtype, device, outcomes, found)]
        ) from None

    return check
