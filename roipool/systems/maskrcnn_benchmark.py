"""maskrcnn-benchmark's systems: see `roipool.compat.maskrcnn_benchmark`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roipool.compat import maskrcnn_benchmark
from roipool.reference import ROI_ALIGN
from roipool.systems.oracles import ALIGN, single_scale
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.verification.case import Case
from roipool.verification.released import Answer
from roipool.verification.released import Case as Golden


def _not_aligned(case: Case) -> Case:
    case = single_scale(case)
    return replace(case, options={"aligned": False} | case.options)


def _pooled(case: Golden) -> Any:
    return maskrcnn_benchmark.roi_align(
        case.features, case.rois, case.size, case.scale, case.sampling
    )


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
            "torchvision", "align", _pooled, applies=lambda c: not c.aligned
        )
    },
    compared={
        "maskrcnn_benchmark.roi_align": Compared(
            rules=ROI_ALIGN, example="maskrcnn_benchmark.roi_align(x, rois, (2, 2), 1.0, 2)"
        )
    },
)
SYSTEMS = {
    "maskrcnn_benchmark.roi_align": _ALIGN,
    "maskrcnn_benchmark.ROIAlign": _ALIGN.only_called(
        forward="compat.maskrcnn_benchmark.ROIAlign.forward",
        backward="compat.maskrcnn_benchmark.ROIAlign.backward",
    ),
}
