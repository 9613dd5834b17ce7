"""The levels of a feature pyramid: their numbers, and the level of each box.

Level k has 2**-k map cells per image pixel. NumPy's functions and front ends share this module.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._errors import shown

# Beyond +-100 the areas between levels leave float64's range.
MAX_LEVEL = 100
USUAL_SIZE = 224.0  # in image pixels: of the pictures that backbones were trained on
USUAL: dict[str, Any] = {"canonical_size": USUAL_SIZE, "canonical_level": 4}


def level(name: str, value: Any) -> int:
    """Return a level of a feature pyramid."""
    number = check.whole_number(name, value)
    if not -MAX_LEVEL <= number <= MAX_LEVEL:
        raise ValueError(f"{name} must be from {-MAX_LEVEL} to {MAX_LEVEL}, got {shown(number)}")
    return number


def size_of_level(name: str, value: Any) -> float:
    """Return the side of a box whose level is known, in image pixels."""
    return _on_a_level(name, check.real_number(name, value))


def _on_a_level(name: str, number: float, when: str = "") -> float:
    """Return a length or a scale if it is that of some level; `when` is part of the error."""
    if not 2.0**-MAX_LEVEL <= number <= 2.0**MAX_LEVEL:
        limits = f"from 2**-{MAX_LEVEL} to 2**{MAX_LEVEL}"
        raise ValueError(f"{name} must be {limits}{when}, got {number}")
    return number


def successive_halves(name: str, scales: Sequence[float], when: str = "") -> None:
    """Check that a pyramid's scales are powers of two, finest first; `when` is part of the error.

    Levels are counted from the first scale: of others a box would silently go to a wrong map.
    """
    finest = scales[0] if len(scales) else 0.0
    is_power = finest > 0 and finest == 2.0 ** round(float(np.log2(finest)))
    if not is_power or any(after != before / 2 for before, after in itertools.pairwise(scales)):
        raise ValueError(
            f"{name} must be powers of two, each half of the one before{when}, got {shown(scales)}"
        )


def level_areas(
    min_level: int, max_level: int, canonical_size: float, canonical_level: int
) -> list[float]:
    """Return the area from which on a box is on each level above the first, in squared pixels."""
    first, last = level("min_level", min_level), level("max_level", max_level)
    usual = level("canonical_level", canonical_level)
    size = size_of_level("canonical_size", canonical_size)
    if last < first:
        raise ValueError(f"max_level must be at least min_level, {first}, got {last}")
    return [size * size * 4.0 ** (each - usual) for each in range(first + 1, last + 1)]


@functools.lru_cache(maxsize=256)
def areas_of_scales(scales: tuple[float, ...]) -> list[float]:
    """Return the area from which on a box is on each level above the first of a pyramid."""
    return level_areas(*levels_of_scales(scales), USUAL_SIZE, USUAL["canonical_level"])


def levels_by_area(corners: Any, none: Any, areas: Sequence[float]) -> Any:
    """Return the level of each box, given its corners in float64; `none` are zeros.

    By operators alone, so that arrays of any library will do.
    """
    width, height = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    area = width * height * (width > 0)  # NaN is on no level above the first
    levels = none
    for least in areas:
        levels = levels + (area >= least)
    return levels


def levels_of_scales(scales: Sequence[float]) -> tuple[int, int]:
    """Return the first and the last level of a pyramid, by the scales of its maps."""
    finest = _on_a_level("spatial_scales[0]", scales[0], " without levels")
    first = -round(float(np.log2(finest)))
    last = first + len(scales) - 1
    successive_halves("spatial_scales", scales, " without levels")
    if last > MAX_LEVEL:
        raise ValueError(
            f"without levels, spatial_scales may reach level {MAX_LEVEL}; these go from {first} to "
            f"{last}"
        )
    return first, last
