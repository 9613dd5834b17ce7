"""The examples of documentation pages that need PyTorch."""

from __future__ import annotations

import pytest
from _support.pages import check_examples, pages_with_examples

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")


@pytest.mark.parametrize("page", pages_with_examples(of_torch=True))
def test_examples(page: str) -> None:
    threads = torch.get_num_threads()
    try:
        check_examples(page)
    finally:
        torch.set_num_threads(threads)


def test_there_are_examples() -> None:
    assert "docs/tutorials/detectors.md" in pages_with_examples(of_torch=True)
