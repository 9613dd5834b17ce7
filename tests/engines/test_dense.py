"""Maxima of dense samples: skipped samples could not be the maximum.

NumPy computes every sample in float32 or float64, in the engine's order of operations, which adds
nothing up in another order and rounds every product: values and argmax must be bitwise identical.
"""

from __future__ import annotations

import numpy as np
import pytest
from _support.catalogue import Array
from _support.compare import assert_same_bits

import roipool

RATIO = (40, 3000)  # rows and columns of samples in a bin
BINS = 2


def every_sample(plane: Array, box: Array, real: type) -> tuple[Array, Array]:
    """Return maxima and argmax of one plane's bins, from all samples."""
    axes = []
    for low, high, size, count in (
        (box[1], box[3], plane.shape[0], RATIO[0]),
        (box[0], box[2], plane.shape[1], RATIO[1]),
    ):
        start = real(low) - real(0.5)
        length = ((real(high) - real(0.5)) - start) / real(BINS)
        numbers = np.arange(count).astype(real)
        bins = np.arange(BINS).astype(real)[:, None]
        position = start + bins * length + (numbers + real(0.5)) * length / real(count)
        held = np.maximum(position, real(0))
        first = np.minimum(held.astype(int), size - 1)
        last = first == size - 1
        fraction = np.where(last, real(0), held - first.astype(real))
        outside = ~((position >= -1) & (position <= size))
        axes.append((first, np.minimum(first + 1, size - 1), 1 - fraction, fraction, outside))
    pooled, argmax = np.empty((BINS, BINS), real), np.empty((BINS, BINS), np.int32)
    for i in range(BINS):
        for j in range(BINS):
            y1, y2, a, b, above = (part[i][:, None] for part in axes[0])
            x1, x2, c, d, aside = (part[j][None, :] for part in axes[1])
            with np.errstate(all="ignore"):
                values = a * c * plane[y1, x1] + a * d * plane[y1, x2]
                values = values + b * c * plane[y2, x1] + b * d * plane[y2, x2]
            values = np.where(above | aside, real(0), values)
            flat = np.where(np.isnan(values), -np.inf, values).ravel()
            found = int(np.argmax(flat))
            pooled[i, j] = flat[found]
            argmax[i, j] = found if flat[found] > -np.inf else -1
    return pooled, argmax


def planes(rng: np.random.Generator) -> dict[str, Array]:
    """Return maps whose neighbours differ, agree, nearly agree, or are not finite."""
    noise = rng.normal(size=(6, 7))
    rising = np.add.outer(np.arange(6.0), np.arange(7.0))
    return {
        "noise": noise,
        "negative": noise - 10,
        "equal": np.full((6, 7), 1 / 3),
        "zero": np.zeros((6, 7)),
        "along rows": np.tile(noise[:1], (6, 1)),
        "along columns": np.tile(noise[:, :1], (1, 7)),
        "a rounding apart": 1 + rng.integers(0, 3, (6, 7)) * 2.0**-23,
        "rising": rising,
        "falling": -rising,
        "steps": np.round(noise),
        "tiny": noise * 1e-39,
        "huge": noise * 1e38,
        "infinite": np.where(noise > 1, np.inf, noise),
        "not numbers": np.where(noise > 1, np.nan, noise),
    }


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_nothing_that_could_win_is_left_out(real: type) -> None:
    rng = np.random.default_rng(0)
    named = planes(rng)
    maps = np.stack(list(named.values())).astype(real)
    for box in ([0.3, 0.4, 6.2, 5.1], [1.5, 1.5, 3.5, 2.5], [-3.0, -1.0, 4.0, 9.0]):
        rois = np.array([[0, *box]], real)
        options = {"sampling_ratio": RATIO, "mode": "max", "return_argmax": True}
        for channels in (maps[None], maps[None, :1]):
            pooled, argmax = roipool.roi_align(channels, rois, BINS, **options)
            for number, name in enumerate(list(named)[: channels.shape[1]]):
                expected, first = every_sample(maps[number], rois[0, 1:], real)
                assert_same_bits(pooled[0, number] + 0, expected + 0)
                assert np.array_equal(argmax[0, number], first), (name, box)


def test_a_finer_grid_than_could_be_visited() -> None:
    """2^30 samples in a bin; the maximum is the sample next to the largest cell."""
    maps = np.zeros((1, 1, 8, 8), np.float32)
    maps[0, 0, 3, 4] = 1
    maps += np.arange(64, dtype=np.float32).reshape(8, 8) / 1000
    pooled = roipool.roi_align(maps, [[0, 2, 2, 7, 6]], 1, sampling_ratio=2**15, mode="max")
    assert np.allclose(pooled, maps[0, 0, 3, 4], atol=1e-3)
