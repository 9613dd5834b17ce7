"""Options and layer of ROI align along three axes, shared by the systems for volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roipool import _arguments as check
from roipool._volumes import Options
from roipool.compat._layers import Layer


def options_of(spatial_scale: Any, sampling_ratio: Any) -> Options:
    """Return the checked options for the core: not aligned; a ratio below 1 is adaptive."""
    scale = check.real_number("spatial_scale", spatial_scale)
    return scale, max(check.whole_number("sampling_ratio", sampling_ratio), 0), False


class RoIAlign3d(Layer):
    """Base of the layers of ROI align, which the systems name ``RoIAlign``."""

    def __init__(
        self,
        output_size: int | Sequence[int],
        spatial_scale: float = 1.0,
        sampling_ratio: int = -1,
    ) -> None:
        self.output_size: tuple[int, int, int] = check.size_triple("output_size", output_size)
        self.spatial_scale: float = options_of(spatial_scale, sampling_ratio)[0]
        self.sampling_ratio = sampling_ratio
