"""Gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
