"""What the figure shows of a volume, its boxes and pooled bins: planes. Maps are shown whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool.tools.compare.inputs import FeatureMap

__all__ = ["are_crossing", "flattened", "middle_bins", "middle_plane"]

FloatArray = NDArray[np.float32]


def middle_plane(roi: FloatArray, features: FeatureMap) -> int:
    """Return the plane of cells through the middle of a finite box, or the nearest to it."""
    if not features.is_volume:
        return 0
    planes = features.values.shape[2]
    middle = (float(roi[3]) + float(roi[6])) / 2
    return int(np.clip(middle / features.size[2] * planes, 0, planes - 1))


def are_crossing(rois: FloatArray, features: FeatureMap, plane: int) -> NDArray[np.bool_]:
    """Return for each box whether a part of it is in a plane of cells."""
    if not features.is_volume:
        return np.ones(len(rois), bool)
    start, end = np.array([plane, plane + 1]) * features.size[2] / features.values.shape[2]
    low, high = np.minimum(rois[:, 3], rois[:, 6]), np.maximum(rois[:, 3], rois[:, 6])
    crossing: NDArray[np.bool_] = (low < end) & ((high > start) | (low >= start))
    return crossing


def flattened(rois: FloatArray, features: FeatureMap) -> FloatArray:
    """Return the boxes in a plane: of a volume, rows of batch index, x1, y1, x2, y2."""
    return rois[:, [0, 1, 2, 4, 5]] if features.is_volume else rois


def middle_bins(pooled: NDArray[Any], features: FeatureMap) -> NDArray[Any]:
    """Return the bins of a box that are shown: of a volume, their middle plane (..., PH, PW)."""
    return pooled[..., pooled.shape[-3] // 2, :, :] if features.is_volume else pooled
