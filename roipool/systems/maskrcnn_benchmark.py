"""maskrcnn-benchmark's systems: see `roipool.compat.maskrcnn_benchmark`."""

from __future__ import annotations

from dataclasses import replace

from roipool.compat import maskrcnn_benchmark
from roipool.reference import ROI_ALIGN, ROI_POOL
from roipool.systems.case import Case
from roipool.systems.oracles import ALIGN, MAXIMUM_OF_CELLS, single_scale
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer


def _not_aligned(case: Case) -> Case:
    case = single_scale(case)
    return replace(case, options={"aligned": False} | case.options)


_ALIGN = System(
    "compat.maskrcnn_benchmark.roi_align",
    "compat.maskrcnn_benchmark.roi_align_backward",
    options=("spatial_scale", "sampling_ratio"),
    samples="grid",
    names=names_of(maskrcnn_benchmark.FORM),
    oracle=Oracle(ALIGN, _not_aligned),
    asked={"operation": "roi_align"},
    goldens={
        "maskrcnn-benchmark roi_align": Answer(
            "torchvision", "align", applies=lambda golden: not golden.aligned
        )
    },
    layers=("maskrcnn_benchmark.ROIAlign",),
    compared={
        "maskrcnn_benchmark.roi_align": Compared(
            rules=ROI_ALIGN, example="maskrcnn_benchmark.roi_align(x, rois, (2, 2), 1.0, 2)"
        )
    },
)
_POOL = System(
    "compat.maskrcnn_benchmark.roi_pool",
    "compat.maskrcnn_benchmark.roi_pool_backward",
    options=("spatial_scale",),
    fixed={"return_argmax": True},
    returns=("pooled", "argmax"),
    names=names_of(maskrcnn_benchmark.FORM),
    oracle=MAXIMUM_OF_CELLS,
    asked={"operation": "roi_pool"},
    goldens={
        "maskrcnn-benchmark roi_pool": Answer("torchvision", "pool", exact=True),
        "maskrcnn-benchmark roi_pool argmax": Answer(
            "torchvision", "pool_argmax", "argmax", exact=True
        ),
        "maskrcnn-benchmark roi_pool gradient": Answer(
            "torchvision", "pool_grad", "gradient", exact=True
        ),
    },
    layers=("maskrcnn_benchmark.ROIPool",),
    compared={
        "maskrcnn_benchmark.roi_pool": Compared(
            rules=ROI_POOL, example="maskrcnn_benchmark.roi_pool(x, rois, (2, 2), 1.0)"
        )
    },
)
SYSTEMS = {"maskrcnn_benchmark.roi_align": _ALIGN, "maskrcnn_benchmark.roi_pool": _POOL}
