"""Paddle's systems: see `roipool.compat.paddle`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool.compat import paddle
from roipool.reference import PS_ROI_POOL, ROI_ALIGN, ROI_POOL
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.core import SYSTEMS as CORE
from roipool.systems.oracles import (
    ALIGN,
    POOL,
    from_own_lowest,
    single_scale,
    without_samples,
)
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.verification.case import Case
from roipool.verification.released import Answer
from roipool.verification.released import Case as Golden

_LIBRARY = ("paddle",)
_NAMES = names_of(paddle.FORM, boxes_num="boxes_num")


def _with_counts(case: Case) -> dict[str, Any]:
    """Return boxes, sorted by image, with the number of boxes of each image."""
    counts = np.bincount(case.images, minlength=len(case.maps))
    return {"rois": case.rois[:, 1:], "boxes_num": counts}


def _pooled(case: Golden) -> tuple[Any, Any]:
    pooled = paddle.roi_pool(
        case.features, case.rois[:, 1:], case.boxes_num, case.size, case.scale, return_argmax=True
    )
    assert isinstance(pooled, tuple)
    return pooled


def _gradient(case: Golden) -> Any:
    return paddle.roi_pool_backward(
        case.grad, _pooled(case)[1], case.rois[:, 1:], case.boxes_num, case.features.shape
    )


def _aligned(case: Golden) -> Any:
    return paddle.roi_align(
        case.features,
        case.rois[:, 1:],
        case.boxes_num,
        case.size,
        case.scale,
        case.sampling,
        case.aligned,
    )


def _aligned_gradient(case: Golden) -> Any:
    return paddle.roi_align_backward(
        case.grad,
        case.rois[:, 1:],
        case.boxes_num,
        case.features.shape,
        case.scale,
        case.sampling,
        case.aligned,
    )


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
        "paddle roi_align": Answer("paddle_align", "align", _aligned),
        "paddle roi_align gradient": Answer("paddle_align", "align_grad", _aligned_gradient),
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
        "paddle roi_pool": Answer("paddle", "pool", lambda c: _pooled(c)[0], True),
        "paddle roi_pool gradient": Answer("paddle", "pool_grad", _gradient),
    },
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
    compared={
        "paddle.psroi_pool": Compared(
            is_listed=False,
            rules=PS_ROI_POOL,
            example="paddle.psroi_pool(x_of_groups, xyxy, [1], 2)",
        )
    },
)
SYSTEMS = {
    "paddle.psroi_pool": _PS_POOL,
    "paddle.PSRoIPool": _PS_POOL.only_called(
        forward="compat.paddle.PSRoIPool.forward", backward=""
    ),
    "paddle.roi_align": _ALIGN,
    "paddle.roi_align gradient": _ALIGN.only_called(
        options=(*_ALIGN.options, "exact_gradient"),
        fixed={},
    ),
    "paddle.RoIAlign": _ALIGN.only_called(
        forward="compat.paddle.RoIAlign.forward",
        backward="",
        options=("spatial_scale", "aligned"),
        fixed={},
    ),
    "paddle.roi_pool": _POOL,
    "paddle.RoIPool": _POOL.only_called(
        forward="compat.paddle.RoIPool.forward", backward="", fixed={}, returns=("pooled",)
    ),
}
COMPARED = {
    "paddle.roi_align": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": True}, rules=ROI_ALIGN
    ),
    "paddle.roi_align[not aligned]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": False}, rules=ROI_ALIGN
    ),
}
