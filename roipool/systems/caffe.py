"""Caffe's systems: see `roipool.compat.caffe`."""

from __future__ import annotations

from roipool.compat import caffe
from roipool.reference import CAFFE_ROI_ALIGN, ROI_POOL
from roipool.systems.oracles import MAXIMUM_OF_CELLS, alone, single_scale
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer

_NAMES = names_of(caffe.FORM)


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
        "caffe roi_pooling": Answer("torchvision", "pool", exact=True),
        "caffe roi_pooling argmax": Answer("torchvision", "pool_argmax", "argmax", exact=True),
        "caffe roi_pooling exact gradient": Answer(
            "torchvision", "pool_grad", "gradient", exact=True
        ),
    },
    gradient_options=("exact_gradient",),
    compared={
        "caffe.roi_pooling": Compared(
            of_gradient=True,
            oracle=("forward",),
            rules=ROI_POOL,
            example="caffe.roi_pooling(x, rois, 2, 2, 1.0)",
        )
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
    gradient_options=("exact_gradient",),
    gradient={"backward": "compat.caffe.roi_align_backward", "mixes_gradients": True},
    compared={
        "caffe.roi_align": Compared(
            of_gradient=True,
            rules=CAFFE_ROI_ALIGN,
            example="caffe.roi_align(x, rois, 2, 2, 1.0)",
        )
    },
)
SYSTEMS = {"caffe.roi_pooling": _POOLING, "caffe.roi_align": _ALIGN}
