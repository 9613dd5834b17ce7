"""Sets the front ends' libraries to one thread, as in ``tests/conftest.py``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

pytest.register_assert_rewrite("front_ends.contract")


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_torch() -> None:
    """Use one thread of torch, if it is installed."""
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
