"""torchvision's calls in docs/migration.md give the numbers of those beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from _support.migration import calls_of, names, value

import roipool


def tensor(array: Any) -> Any:
    return [tensor(item) for item in array] if isinstance(array, list) else torch.tensor(array)


@pytest.mark.parametrize(("theirs", "same"), calls_of("torchvision"))
def test_row(theirs: str, same: str) -> None:
    arguments = {name: tensor(array) for name, array in names().items()}
    found = eval(theirs, {"torchvision": torchvision}, arguments)
    np.testing.assert_allclose(found.numpy(), value(same), rtol=1e-5, atol=1e-5)


def test_roi_align_of_sam_3_needs_no_cast() -> None:
    """It pools bfloat16 maps with boxes in cells; torchvision's operator needs a cast."""
    features = torch.randn(2, 5, 30, 40, generator=torch.Generator().manual_seed(0))
    features = features.to(torch.bfloat16)
    boxes = [torch.tensor([[2.5, 3, 20, 18], [0, 0, 40, 30]]), torch.tensor([[7, 8, 9.5, 11.0]])]
    expected = torchvision.ops.roi_align(features.float(), boxes, 7).to(torch.bfloat16)
    pooled = roipool.roi_align(features, boxes, 7, aligned=False)
    assert pooled.dtype == torch.bfloat16
    torch.testing.assert_close(pooled, expected, rtol=2**-7, atol=1e-6)
