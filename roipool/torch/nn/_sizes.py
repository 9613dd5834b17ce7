"""Sizes and sampling ratios as torchvision and mmcv write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Size: TypeAlias = int | Sequence[int]


def pair(size: Size) -> Size:
    """Return one number for both axes as a pair, as torchvision and mmcv keep it."""
    return size if isinstance(size, Sequence) else (size, size)


def samples(ratio: Size) -> Size:
    """Return a sampling ratio, 0 for torchvision's negative ones."""
    if isinstance(ratio, Sequence):
        return tuple(max(each, 0) for each in ratio)
    return max(ratio, 0)
