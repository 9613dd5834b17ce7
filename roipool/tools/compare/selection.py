"""Selects the boxes and channels that show best how systems differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roipool.tools.compare.differences import PartComparison, distance

__all__ = ["most_telling", "telling_channel"]

FloatArray = NDArray[np.float32]

_ENOUGH = 1e30  # larger and infinite differences count as this


def most_telling(comparison: PartComparison, rois: FloatArray, count: int) -> list[int]:
    """Select the boxes of one image on which the systems differ most from the reference.

    Parameters
    ----------
    rois : (K, 5), (K, 6) or (K, 7) float32 ndarray
        The boxes; those with a NaN or an infinity cannot be drawn and are never selected.

    Returns
    -------
    list of int
        Indices into `rois`, the largest difference first.
    """
    reference = comparison.groups[comparison.reference_group].output
    score = np.zeros(len(rois))
    for group in comparison.groups:
        for index in range(len(rois)):
            apart = distance(group.output[index], reference[index])
            score[index] += min(float(apart.mean()), _ENOUGH)
    order = [int(i) for i in np.argsort(-score, kind="stable") if np.isfinite(rois[i]).all()]
    return [index for index in order if rois[index, 0] == rois[order[0], 0]][:count]


def telling_channel(comparison: PartComparison, boxes: Sequence[int]) -> int:
    """Select the channel with the largest mean difference."""
    shown = list(boxes)
    reference = comparison.groups[comparison.reference_group].output[shown]
    score = np.zeros(reference.shape[1])
    for group in comparison.groups:
        apart = np.minimum(distance(group.output[shown], reference), _ENOUGH)
        score += apart.sum(axis=(0, *range(2, apart.ndim)))
    return int(np.argmax(score))
