"""Paddle's systems: see `roipool.compat.paddle`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool.compat import paddle
from roipool.reference import PS_ROI_POOL, ROI_ALIGN, ROI_POOL
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.case import Case
from roipool.systems.core import SYSTEMS as CORE
from roipool.systems.oracles import (
    ALIGN,
    POOL,
    from_own_lowest,
    single_scale,
    without_samples,
)
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer

_LIBRARY = ("paddle",)
_NAMES = names_of(paddle.FORM, boxes_num="boxes_num")


def _with_counts(case: Case) -> dict[str, Any]:
    """Return boxes, sorted by image, with the number of boxes of each image."""
    counts = np.bincount(case.images, minlength=len(case.maps))
    return {"rois": case.rois[:, 1:], "boxes_num": counts}


_ALIGN = System(
    "compat.paddle.roi_align",
    "compat.paddle.roi_align_backward",
    options=("spatial_scale", "sampling_ratio", "aligned"),
    fixed={"exact_gradient": True},
    samples="grid",
    boxes=_with_counts,
    names=_NAMES,
    forms=PER_IMAGE,
    oracle=Oracle(
        ALIGN._replace(fixed={**ALIGN.fixed, "order": "paddle"}),
        single_scale,
        lambda case, results: without_samples(single_scale(case), results),
    ),
    asked={"operation": "roi_align"},
    goldens={
        "paddle roi_align": Answer("paddle_align", "align"),
    },
    layers=("paddle.RoIAlign",),
    gradient_options=("exact_gradient",),
    gradient={
        "goldens": {
            "paddle roi_align gradient": Answer("paddle_align", "align_grad", "gradient"),
        }
    },
)
_POOL = System(
    "compat.paddle.roi_pool",
    "compat.paddle.roi_pool_backward",
    options=("spatial_scale",),
    fixed={"return_argmax": True},
    returns=("pooled", "argmax"),
    boxes=_with_counts,
    names=_NAMES,
    forms=PER_IMAGE,
    oracle=Oracle(POOL, single_scale, from_own_lowest),
    asked={"operation": "roi_pool"},
    goldens={
        "paddle roi_pool": Answer("paddle", "pool", exact=True),
        "paddle roi_pool gradient": Answer("paddle", "pool_grad", "gradient"),
    },
    layers=("paddle.RoIPool",),
    compared={
        "paddle.roi_pool": Compared(
            libraries=_LIBRARY, rules=ROI_POOL, example="paddle.roi_pool(x, xyxy, [1], 2)"
        )
    },
)
_PS_POOL = System(
    "compat.paddle.psroi_pool",
    "compat.paddle.psroi_pool_backward",
    stored=("paddle_ps",),
    options=("spatial_scale",),
    boxes=_with_counts,
    names=_NAMES,
    forms=PER_IMAGE,
    is_position_sensitive=True,
    oracle=Oracle(CORE["ps_roi_pool"], single_scale),
    layers=("paddle.PSRoIPool",),
    compared={
        "paddle.psroi_pool": Compared(
            is_listed=False,
            rules=PS_ROI_POOL,
            example="paddle.psroi_pool(x_of_groups, xyxy, [1], 2)",
        )
    },
)
SYSTEMS = {"paddle.psroi_pool": _PS_POOL, "paddle.roi_align": _ALIGN, "paddle.roi_pool": _POOL}
COMPARED = {
    "paddle.roi_align": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": True}, rules=ROI_ALIGN
    ),
    "paddle.roi_align[not aligned]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": False}, rules=ROI_ALIGN
    ),
}
