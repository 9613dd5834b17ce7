"""Pytest plugin: parametrizes the test of another implementation with roipool's test cases.

Every pytest in an environment with roipool imports this plugin, so it has no hooks around tests,
and imports roipool only in tests that use its fixture. ``docs/testing.md`` shows how to use it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

_HELP = (
    "roipool(semantics, **options): check the implementation that the test passes to the fixture "
    "`conforms` with roipool's catalogue and random calls; options as for "
    "roipool.testing.assert_conforms"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", _HELP)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that uses the fixture."""
    if "conforms" in metafunc.fixturenames:
        from roipool.tools.conformance import pytest_tests

        pytest_tests.parametrize(metafunc)


@pytest.fixture
def conforms(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Check an implementation: ``conforms(function, backward=..., arrays=...)``."""
    from roipool.tools.conformance.pytest_tests import run_checks

    return run_checks(request)
