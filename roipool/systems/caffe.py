"""Caffe's systems: see `roipool.compat.caffe`."""

from __future__ import annotations

from typing import Any

from roipool.compat import caffe
from roipool.reference import CAFFE_ROI_ALIGN, ROI_POOL
from roipool.systems.oracles import MAXIMUM_OF_CELLS, alone, single_scale
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.verification.released import Answer, Case

_NAMES = names_of(caffe.FORM)


def _pooled(case: Case) -> tuple[Any, Any]:
    return caffe.roi_pooling(case.features, case.rois, *case.size, case.scale)


def _exact_gradient(case: Case) -> Any:
    return caffe.roi_pooling_backward(
        case.grad,
        _pooled(case)[1],
        case.rois,
        case.features.shape,
        *case.size,
        case.scale,
        exact_gradient=True,
    )


_POOLING = System(
    "compat.caffe.roi_pooling",
    "compat.caffe.roi_pooling_backward",
    options=("spatial_scale",),
    fixed={"exact_gradient": True},
    returns=("pooled", "argmax"),
    names=_NAMES,
    oracle=MAXIMUM_OF_CELLS,
    asked={"operation": "roi_pool"},
    goldens={
        "caffe roi_pooling": Answer("torchvision", "pool", lambda c: _pooled(c)[0], True),
        "caffe roi_pooling argmax": Answer(
            "torchvision", "pool_argmax", lambda c: _pooled(c)[1], True
        ),
        "caffe roi_pooling exact gradient": Answer(
            "torchvision", "pool_grad", _exact_gradient, True
        ),
    },
)
_ALIGN = System(
    "compat.caffe.roi_align",
    options=("spatial_scale",),
    returns=("pooled", "argmax_x", "argmax_y"),
    names=_NAMES,
    oracle=Oracle(
        alone("sample", "caffe_roi_align", "pooled", "argmax_x", "argmax_y"), single_scale
    ),
)
SYSTEMS = {
    "caffe.roi_pooling": _POOLING,
    "caffe.roi_pooling gradient": _POOLING.only_called(
        options=("spatial_scale", "exact_gradient"),
        fixed={},
        compared={
            "caffe.roi_pooling": Compared(
                oracle=("forward",),
                rules=ROI_POOL,
                example="caffe.roi_pooling(x, rois, 2, 2, 1.0)",
            )
        },
    ),
    "caffe.roi_align": _ALIGN,
    "caffe.roi_align gradient": _ALIGN.only_called(
        backward="compat.caffe.roi_align_backward",
        options=("spatial_scale", "exact_gradient"),
        mixes_gradients=True,
        compared={
            "caffe.roi_align": Compared(
                rules=CAFFE_ROI_ALIGN, example="caffe.roi_align(x, rois, 2, 2, 1.0)"
            )
        },
    ),
}
