"""TensorFlow's calls in docs/migration.md give the same numbers as roipool's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from _support.migration import calls_of, names, value


@pytest.mark.parametrize(("theirs", "same"), calls_of("tf"))
def test_row(theirs: str, same: str) -> None:
    found = eval(theirs, {"tf": tf}, names())
    np.testing.assert_allclose(found.numpy(), value(same), rtol=1e-5, atol=1e-5)
