"""Gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from _support.backends import Backend
from _support.compare import Array


def numbers(*shape: int) -> Array:
    """Return normally distributed numbers with a fixed seed."""
    return np.random.default_rng(shape).normal(size=shape)


def differences(function: Callable[[Array], float], at: Array, step: float) -> Array:
    """Return the central differences of `function` with respect to each number of `at`."""
    slopes = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        slopes[place] = (function(up) - function(down)) / (2 * step)
    return slopes


def feature_differences(
    forward: Callable[[Array], Array],
    maps: Array,
    upstream: Array,
    step: float,
    layout: str = "NCHW",
) -> Array:
    """Return the central differences of <`forward`(maps), `upstream`> for each number of `maps`.

    Channels are independent, so the channels of a single call hold copies of the maps, each with
    one number changed.
    """
    axis = layout.index("C")
    shape, count = maps.shape, maps.size

    def losses(by: float) -> Array:
        copies = np.repeat(maps[np.newaxis], count, axis=0)
        copies.reshape(count, count)[np.diag_indices(count)] += by
        pooled = forward(np.concatenate(copies, axis))
        weighted = np.stack(np.split(pooled, count, axis)) * upstream
        return weighted.reshape(count, -1).sum(axis=1).reshape(shape)

    return (losses(step) - losses(-step)) / (2 * step)


def check_features(
    backend: Backend,
    forward: Callable[[Any], Any],
    backward: Callable[[Any], Any],
    shape: tuple[int, ...],
    step: float,
    layout: str,
) -> None:
    """Compare a backward with differences of the dot product of its forward and a gradient."""
    maps = numbers(*shape)

    def pooled(values: Array) -> Array:
        return backend.to_host(forward(backend.to_device(values)))

    upstream = numbers(*pooled(maps).shape)
    found = backend.to_host(backward(backend.to_device(upstream)))
    expected = feature_differences(pooled, maps, upstream, step, layout)
    # Averages are linear, so the step can be large; small steps lose digits.
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-14 / step)
