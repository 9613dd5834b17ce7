"""Draws the options of random calls: `DRAWN` has a function for each option's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from roipool.systems import System

Random: TypeAlias = np.random.Generator


def drawn_options(rng: Random, system: System) -> dict[str, Any]:
    """Draw a value for each of a system's options."""
    return {name: DRAWN[name](rng, system) for name in system.options}


def _scale_above_0(rng: Random) -> float:
    usual = (1.0, 1.0, 0.5, 1 / 16, 1 / 3, 0.6, 1 / 32, 2.0, rng.uniform(0.02, 3))
    return float(usual[rng.integers(len(usual))])


def _any_scale(rng: Random) -> float:
    return 0.0 if rng.random() < 0.03 else _scale_above_0(rng)


def _scale_up_to_1(rng: Random) -> float:
    return float(rng.choice((1.0, 1.0, 0.5, 1 / 16, 1 / 3, 0.6, rng.uniform(0.02, 1))))


def _power_of_two(rng: Random) -> float:
    return float(2.0 ** rng.integers(-5, 2))


_SCALES = {
    "any": _any_scale,
    "above 0": _scale_above_0,
    "up to 1": _scale_up_to_1,
    "powers of 2": _power_of_two,
}


def _spatial_scale(rng: Random, system: System) -> float:
    return _SCALES[system.scales](rng)


def _scale_ratio(rng: Random, system: System) -> float:
    """Draw the scale of rows over that of columns, which is the larger one."""
    return float(rng.choice((1.0, 1.0, 1.0, 0.5, 0.75, rng.uniform(0.1, 1))))


def _one_ratio(rng: Random) -> int:
    usual = (0, 0, 1, 1, 2, 3)
    return usual[rng.integers(6)] if rng.random() < 0.6 else int(rng.integers(10))


def _sampling_ratio(rng: Random, system: System) -> int | tuple[int, int]:
    """Draw one ratio for both axes or, if the system takes pairs, one for each axis."""
    if not system.pairs:
        return _one_ratio(rng)
    return _one_ratio(rng) if rng.random() < 0.5 else (_one_ratio(rng), _one_ratio(rng))


def _samples(rng: Random, system: System) -> int | tuple[int, int]:
    """Draw at least one sample, for both axes or for each."""
    down, across = (int(number) for number in rng.choice((1, 2, 3, 4, 4, 9), 2))
    return (down, across) if system.pairs and rng.random() < 0.5 else down


def _group_size(rng: Random, system: System) -> int | tuple[int, int]:
    """Draw as many groups as bins, mostly, or another number along each axis."""
    if rng.random() < 0.6:
        return 0
    down, across = (int(number) for number in rng.integers(0, 4, 2))
    return (down, across) if rng.random() < 0.5 else down


def _flag(rng: Random, system: System) -> bool:
    return bool(rng.integers(2))


def _outside(rng: Random, system: System) -> float:
    return float(rng.choice((0.0, 0.5, -3.0, np.nan, np.inf)))


def _one_of(*values: str) -> Callable[[Random, System], str]:
    return lambda rng, system: str(rng.choice(values))


def _orientations(rng: Random, system: System) -> int:
    return int(rng.choice((1, 2, 4, 8, 3)))


def _canonical_size(rng: Random, system: System) -> float:
    return float(rng.choice((224, 224, 50, 7.5)))


def _canonical_level(rng: Random, system: System) -> int:
    return int(rng.integers(-1, 6))


def _sample_offset(rng: Random, system: System) -> float:
    return float(rng.choice((0.5, 0.5, 0.0, 1.0, rng.uniform(-0.5, 1.5))))


def _gamma(rng: Random, system: System) -> float:
    gamma = float(rng.choice((0.1, 0.1, 1.0, 0.0, -0.6, rng.uniform(0, 2))))
    return min(abs(gamma), 1.0) if system.scales == "up to 1" else gamma


def _step(rng: Random, system: System) -> float:
    return float(np.float32(rng.choice((1.0, 0.1, 1 / 256, rng.uniform(0.001, 10)))))


def _zero_point(rng: Random, system: System) -> int:
    """Draw a code that all types of maps have."""
    return 0 if rng.random() < 0.3 else int(rng.integers(128))


def _padding(rng: Random, system: System) -> int:
    return int(rng.choice((1, 1, 0, 2, 5)))


DRAWN: dict[str, Callable[[Random, System], Any]] = {
    "spatial_scale": _spatial_scale,
    "scale_ratio": _scale_ratio,
    "sampling_ratio": _sampling_ratio,
    "samples": _samples,
    "aligned": _flag,
    "group_size": _group_size,
    "clockwise": _flag,
    "num_orientations": _orientations,
    "angle_unit": _one_of("radians", "degrees"),
    "extrapolation_value": _outside,
    "border": _one_of("constant", "edge"),
    "coordinate_transformation_mode": _one_of("half_pixel", "output_half_pixel"),
    "aligned_mode": _one_of("asymmetric", "half_pixel_for_nn", "half_pixel"),
    "exact_gradient": _flag,
    "transform_fpcoor": _flag,
    "by_size": _flag,
    "gamma": _gamma,
    "sample_offset": _sample_offset,
    "canonical_box_size": _canonical_size,
    "canonical_scale": _canonical_size,
    "canonical_level": _canonical_level,
    "padding": _padding,
    "input_scale": _step,
    "input_zero_point": _zero_point,
    "pooler_type": _one_of("ROIAlign", "ROIAlignV2"),
}
