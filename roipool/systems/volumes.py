"""Cases for operations on volumes: the rows of a case's maps are divided among planes.

So pooled values and gradients of volumes have the shapes of the case's, with the rows of all planes
one after the other, and the relations that hold for maps can be tested on volumes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool._layout import MAP_LAYOUTS, VolumeLayout, merged, volume_of
from roipool.systems.case import STORAGES, Array, Case, dtypes

MOST_PLANES, MOST_BINS = 4, 3

# The layout of volumes whose rows are those of maps in a layout.
OF_VOLUMES: dict[str, VolumeLayout] = {maps: volumes for volumes, maps in MAP_LAYOUTS.items()}


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor up to `most`."""
    return next(each for each in range(most, 0, -1) if number % each == 0)


def volume_size(case: Case) -> tuple[int, int, int]:
    """Return the planes of the case's volumes, and the rows and columns of each."""
    rows, columns = case.maps.shape[2:]
    planes = _divisor(rows, MOST_PLANES) if case.planes is None else case.planes[0]
    return planes, rows // max(planes, 1), columns


def bins_of(case: Case) -> tuple[int, int, int]:
    """Return the bins along depth, rows and columns."""
    rows, columns = case.size
    depth = _divisor(rows, MOST_BINS) if case.planes is None else case.planes[1]
    return depth, rows // depth, columns


def with_depth(case: Case) -> Case:
    """Return the case with boxes of volumes: image, x1, y1, z1, x2, y2, z2.

    They are the case's own, or follow from those.
    """
    if case.rois.shape[1] == 7:
        return case
    planes, _, columns = volume_size(case)
    image, x1, y1, x2, y2 = case.rois.T
    with np.errstate(all="ignore"):
        z1, z2 = (x * (planes / max(columns, 1)) for x in (x1, x2))
        is_half = 7.3 * x1 % 3 < 1
        z1, z2 = (np.where(is_half, np.round(2 * z) / 2, z) for z in (z1, z2))
    table = np.column_stack([image, x1, y1 / planes, z1, x2, y2 / planes, z2])
    return replace(case, rois=table)


def arguments(case: Case) -> dict[str, Any]:
    """Return the arguments that differ from those of maps."""
    store, ratio = STORAGES[case.storage].store, case.options["sampling_ratio"]
    size, bins = volume_size(case), bins_of(case)
    images, channels = case.maps.shape[:2]
    layout, scale = OF_VOLUMES[case.layout], case.options["spatial_scale"]
    maps = case.maps.reshape(images, channels, *size).astype(dtypes()[case.dtype])
    grad = case.grad.reshape(len(case.rois), channels, *bins).astype(dtypes()[case.pooled_dtype])
    if layout == "NDHWC":
        maps, grad = np.moveaxis(maps, 1, -1), np.moveaxis(grad, 1, -1)
    if not isinstance(ratio, int):  # an option by axis stands for all of them
        down, across = ratio
        ratio, scale = (across, down, across), (0.75 * scale, 0.5 * scale, scale)
    return {
        "features": store(np.ascontiguousarray(maps)),
        "grad_output": store(np.ascontiguousarray(grad)),
        "input_shape": volume_of(images, channels, size, layout),
        "output_size": bins,
        "layout": layout,
        "sampling_ratio": ratio,
        "spatial_scale": scale,
    }


def pooled_shape(case: Case) -> tuple[int, ...]:
    """Return the shape of pooled values, in the case's layout."""
    return volume_of(len(case.rois), case.grad.shape[1], bins_of(case), OF_VOLUMES[case.layout])


def as_maps(array: Array, layout: str) -> Array:
    """Return volumes with the rows of all planes one after the other; other arrays unchanged."""
    return merged(array, OF_VOLUMES[layout]) if array.ndim == 5 else array
