"""The model garden's system: see `roipool.compat.model_garden`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool.systems import pyramids
from roipool.systems.case import Array, Case
from roipool.systems.core import LEVELS
from roipool.systems.row import FloatArray, Oracle, System
from roipool.systems.stored import Results

_FIRST_LEVEL = 3


def _in_pixels(case: Case) -> Array:
    """Return the boxes x1, y1, x2, y2 in image pixels, some enlarged so that levels differ."""
    large = np.floor(np.abs(7.3 * case.rois[:, 1] + 1.9 * case.rois[:, 4])) % 3 == 1
    return case.rois[:, 1:] * np.where(large, 4.0, 1.0)[:, None] * 2.0**_FIRST_LEVEL


def _boxes(case: Case) -> dict[str, Any]:
    return {"boxes": _in_pixels(case)[:, [1, 0, 3, 2]], "batch_indices": case.images}


def _by_level(values: list[Any]) -> dict[str, Any]:
    return {str(_FIRST_LEVEL + level): value for level, value in enumerate(values)}


def _with_levels(case: Case) -> Case:
    """Return the oracle's case, with levels by logarithms in float32."""
    maps = len(pyramids.heights(case.maps.shape[2]))
    scales = [2.0 ** -(_FIRST_LEVEL + level) for level in range(maps)]
    boxes, real, single = _in_pixels(case), case.real, np.float32
    with np.errstate(all="ignore"):
        x1, y1, x2, y2 = boxes.astype(real).T
        side = np.sqrt(((y2 - y1) * (x2 - x1)).astype(single)) / single(224)
        exact = np.floor(np.log(side) / single(np.log(2))) + single(4)
        levels = np.where(np.isnan(exact), 0, np.clip(exact - _FIRST_LEVEL, 0, len(scales) - 1))
    options = {**case.options, "spatial_scales": scales, "levels": levels.astype(np.int64)}
    rois = np.column_stack([case.rois[:, 0], boxes])
    return replace(case, rois=rois, options=options)


def _y_first(case: Case, results: Results) -> Results:
    if "box_gradient" not in results:
        return results
    return results | {"box_gradient": results["box_gradient"][:, [1, 0, 3, 2]]}


def _largest_sum(case: Case) -> FloatArray:
    """Return the sum of absolute weights half a box ahead of each box, on the finest map."""
    cells = _in_pixels(case) * 2.0**-_FIRST_LEVEL
    low, high = np.minimum(cells[:, :2], cells[:, 2:]), np.maximum(cells[:, :2], cells[:, 2:])
    ahead = np.maximum((high - low) / 2 - low, 0.0)
    return np.asarray((1 + 2 * ahead).prod(axis=1))


_REFERENCE = LEVELS._replace(
    forward="multilevel_garden_crop",
    backward="multilevel_garden_crop_backward",
    box_gradient="multilevel_garden_crop_backward_rois",
)
_CROPS = System(
    "compat.model_garden.multilevel_crop_and_resize",
    "compat.model_garden.multilevel_crop_and_resize_backward",
    "compat.model_garden.multilevel_crop_and_resize_backward_boxes",
    options=("sample_offset",),
    stored=("model_garden",),
    samples="one",
    boxes=_boxes,
    layouts=("NHWC",),
    finite=True,
    pyramid=_by_level,
    without_oracle=("float16",),  # in which extrapolated values overflow
    is_semantics=False,
    layers=("model_garden.MultilevelROIAligner",),
    oracle=Oracle(_REFERENCE, _with_levels, _y_first, largest_sum=_largest_sum),
)
SYSTEMS = {"model_garden.multilevel_crop_and_resize": _CROPS}
