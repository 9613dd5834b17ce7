"""The sides of boxes by the rules for their ends, and how they are divided."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from roipool.reference._inputs import Real, Scalar
from roipool.reference._rules import COUNTS, ROUNDINGS, Rules

ADAPTIVE_LIMIT = 2**22  # samples that a bin of an adaptive grid may have on one axis


class Side(NamedTuple):
    """Start and length of a side in cells, and whether the length is held at the least one.

    A held length is a constant, not the box's. A side that is not finite is NaN, so that all
    its samples are outside (a clamped length could hide an infinite end).
    """

    start: Scalar
    length: Scalar
    is_held: bool


def ends_of(
    rules: Rules, first: float, last: float, scale: float, real: Real
) -> tuple[Scalar, Scalar] | None:
    """Both ends of a side, by the rules for pixels, in cells; None if one is not finite."""
    start, end = real(first), real(last)
    rounded = ROUNDINGS[rules.rounding] if rules.rounding_unit == "pixel" else None
    if rules.extra == "rounded pixel":
        end = end + real(1)
    if rounded is not None and np.isfinite(start) and np.isfinite(end):
        start, end = real(rounded(start)), real(rounded(end))
    if rules.extra == "pixel":
        end = end + real(1)
    if rules.shift_unit == "pixel":
        assert not isinstance(rules.shift, tuple)
        start, end = start - real(rules.shift), end - real(rules.shift)
    start, end = start * real(scale), end * real(scale)
    return (start, end) if np.isfinite(start) and np.isfinite(end) else None


def side_of(rules: Rules, first: float, last: float, scale: float, real: Real) -> Side:
    """A side by the rules for its ends, which have no pair."""
    ends = ends_of(rules, first, last, scale, real)
    if ends is None:
        return Side(real(math.nan), real(math.nan), False)
    start, end = ends
    rounded = ROUNDINGS[rules.rounding]
    if rounded is not None and rules.rounding_unit == "cell":
        start, end = real(rounded(start)), real(rounded(end))
    if rules.shift_unit == "cell":
        assert not isinstance(rules.shift, tuple)
        start, end = start - real(rules.shift), end - real(rules.shift)
    length = end - start
    if rules.extra == "cell":
        length = length + real(1)
    assert not isinstance(rules.minimum, tuple)
    if rules.minimum is not None and length < real(rules.minimum):
        return Side(start, real(rules.minimum), True)
    return Side(start, length, False)


def samples_per_bin(
    rules: Rules, length: Scalar, bins: int, ratio: int, real: Real, count_real: Real
) -> int:
    """Samples of a bin on one side: `ratio`; if not positive, one per cell, rounded up.

    The bin's length is rounded to `count_real` before it is rounded up.
    """
    ratio = ratio if rules.ratio is None else rules.ratio
    if ratio > 0:
        return ratio
    adaptive = COUNTS[rules.adaptive]
    if isinstance(adaptive, int):
        return adaptive
    per_bin = float(count_real(float(length / real(bins))))
    return adaptive(min(per_bin, ADAPTIVE_LIMIT)) if per_bin > 0 else 0


def cut_bin(
    start: Scalar, length: Scalar, p: int, bins: int, size: int, real: Real
) -> tuple[Scalar, Scalar]:
    """Start and end of bin `p` of a side, not rounded, cut at the map.

    Of a side that is not finite there is nothing.
    """
    bin_size = length / real(bins)
    if not (np.isfinite(start) and np.isfinite(bin_size)):
        return real(0), real(0)
    low, high = (
        min(max(real(edge) * bin_size + start, real(0)), real(size)) for edge in (p, p + 1)
    )
    return low, high
