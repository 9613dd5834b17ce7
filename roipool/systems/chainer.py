"""Chainer's systems: see `roipool.compat.chainer`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool.compat import chainer
from roipool.reference import ROI_AVERAGE_POOL, ROI_POOL
from roipool.systems import boxes, core
from roipool.systems.oracles import POOL
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.verification.case import Case
from roipool.verification.released import Answer
from roipool.verification.released import Case as Golden


def _half_to_even(case: Case) -> Case:
    """Round boxes to whole cells, halves to even."""
    table = case.rois.copy()
    table[:, 1:] = np.rint(table[:, 1:] * case.options["spatial_scale"])
    return replace(case, rois=table, options={})


def _pooled(case: Golden) -> tuple[Any, Any]:
    pooled = chainer.roi_pooling_2d(
        case.features, case.rois, *case.size, case.scale, return_argmax=True
    )
    assert isinstance(pooled, tuple)
    return pooled


def _argmax(case: Golden) -> Any:
    """Return the argmax with 0 for empty bins, as in Chainer."""
    argmax = _pooled(case)[1]
    return argmax * (argmax >= 0)


def _gradient(case: Golden) -> Any:
    return chainer.roi_pooling_2d_backward(
        case.grad, _pooled(case)[1], case.rois, case.features.shape, *case.size, case.scale
    )


_POOLING = System(
    "compat.chainer.roi_pooling_2d",
    "compat.chainer.roi_pooling_2d_backward",
    options=("spatial_scale",),
    scales="above 0",
    fixed={"return_argmax": True, "exact_gradient": True},
    returns=("pooled", "argmax"),
    finite=True,
    names=names_of(chainer.POOLING_FORM, outh="pooled_h", outw="pooled_w"),
    oracle=Oracle(
        POOL._replace(fixed={**POOL.fixed, "coordinate_dtype": np.float64}), _half_to_even
    ),
    goldens={
        "chainer roi_pooling_2d": Answer("chainer_pooling", "pool", lambda c: _pooled(c)[0], True),
        "chainer roi_pooling_2d argmax": Answer("chainer_pooling", "pool_argmax", _argmax, True),
        "chainer roi_pooling_2d gradient": Answer("chainer_pooling", "pool_grad", _gradient),
    },
)
SYSTEMS = {
    "chainer.roi_pooling_2d": _POOLING,
    "chainer.roi_pooling_2d gradient": _POOLING.only_called(
        options=("spatial_scale", "exact_gradient"),
        fixed={"return_argmax": True},
        compared={
            "chainer.roi_pooling_2d": Compared(
                oracle=("forward",),
                rules=replace(ROI_POOL, rounding="half even"),
                example="chainer.roi_pooling_2d(x, rois, 2, 2, 1.0)",
            )
        },
    ),
    "chainer.roi_average_pooling_2d": System(
        "compat.chainer.roi_average_pooling_2d",
        "compat.chainer.roi_average_pooling_2d_backward",
        options=("spatial_scale",),
        scales="above 0",
        boxes=boxes.y_first,
        finite=True,
        names=names_of(chainer.FORM),
        oracle=Oracle(
            core.SYSTEMS["roi_average_pool"]._replace(fixed={"edge_dtype": np.float64}),
            _half_to_even,
        ),
        compared={
            "chainer.roi_average_pooling_2d": Compared(
                rules=replace(ROI_AVERAGE_POOL, rounding="half even"),
                example="chainer.roi_average_pooling_2d(x, yxyx, [0], 2, 1.0)",
            )
        },
    ),
}
