"""What tests of arrays of libraries without a front end of their own share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import roipool

from .cases import SIZE, PyramidCase, maps
from .compare import assert_same_bits


def check_pyramid(
    case: PyramidCase, wrap: Callable[[Any], Any], host: Callable[[Any], Any],
    dtype: str = "float32",
) -> None:  # fmt: skip
    """Compare values and gradients with those of NumPy arrays; `host` unwraps, and checks types."""
    plain = [maps().astype(dtype), case.boxes().astype(np.float32), case.indices()]
    expected = case.pool(*plain)
    features = [wrap(np.ascontiguousarray(each)) for each in case.pyramid(plain[0])]
    boxes = wrap(plain[1])
    options = {"levels": wrap(case.levels(plain[1])), "batch_indices": wrap(plain[2])}
    options |= case.options()
    pooled = roipool.multilevel_roi_align(features, boxes, SIZE, **options)
    assert_same_bits(host(pooled), expected)
    shapes = [each.shape for each in case.pyramid(plain[0])]
    gradients = roipool.multilevel_roi_align_backward(pooled, boxes, shapes, **options)
    assert isinstance(gradients, list)
    wanted = case.gradient(expected, None, *plain[1:], plain[0].shape)
    for mine, other in zip(gradients, wanted, strict=True):
        assert_same_bits(host(mine), other)
    slopes = roipool.multilevel_roi_align_backward_rois(pooled, features, boxes, **options)
    assert_same_bits(host(slopes), case.box_gradient(expected, *plain))
