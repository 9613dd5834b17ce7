"""torchvision's calls in docs/migration.md give the numbers of those beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from _support.migration import calls_of, names, value


def tensor(array: Any) -> Any:
    return [tensor(item) for item in array] if isinstance(array, list) else torch.tensor(array)


@pytest.mark.parametrize(("theirs", "same"), calls_of("torchvision"))
def test_row(theirs: str, same: str) -> None:
    arguments = {name: tensor(array) for name, array in names().items()}
    found = eval(theirs, {"torchvision": torchvision}, arguments)
    np.testing.assert_allclose(found.numpy(), value(same), rtol=1e-5, atol=1e-5)
