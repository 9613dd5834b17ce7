"""Gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from _support.backends import Backend
from _support.compare import Array


def numbers(*shape: int) -> Array:
    """Return normal numbers that differ from call to call only by shape."""
    return np.random.default_rng(shape).normal(size=shape)


def differences(function: Callable[[Array], float], at: Array, step: float) -> Array:
    """Return the central differences of `function` by each number of `at`."""
    slopes = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        slopes[place] = (function(up) - function(down)) / (2 * step)
    return slopes


def check_features(
    backend: Backend,
    forward: Callable[[Any], Any],
    backward: Callable[[Any], Any],
    shape: tuple[int, ...],
    step: float,
) -> None:
    """Compare a backward with the differences of its forward's dot product with a gradient."""
    maps = numbers(*shape)
    upstream = numbers(*backend.to_host(forward(backend.to_device(maps))).shape)

    def loss(values: Array) -> float:
        return float(np.sum(backend.to_host(forward(backend.to_device(values))) * upstream))

    found = backend.to_host(backward(backend.to_device(upstream)))
    # Averages are linear, so any step does; differences lose digits as the step gets small.
    np.testing.assert_allclose(found, differences(loss, maps, step), rtol=0, atol=2e-14 / step)
