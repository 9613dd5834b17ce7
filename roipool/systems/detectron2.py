"""detectron2's systems: see `roipool.compat.detectron2`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roipool.compat import detectron2
from roipool.reference import ROI_ALIGN
from roipool.systems import boxes, pyramids, torchvision
from roipool.systems.case import Case
from roipool.systems.core import LEVELS
from roipool.systems.oracles import ALIGN, from_lowest
from roipool.systems.row import DTYPES, Compared, Oracle, System, names_of
from roipool.systems.stored import Answer


def _box_lists(case: Case) -> dict[str, Any]:
    return {"box_lists": pyramids.tables_of_images(case), "scales": pyramids.scales_of(case)}


def _rotated_box_lists(case: Case) -> dict[str, Any]:
    in_degrees = {**case.options, "angle_unit": "degrees"}
    per_image = replace(case, form="one array per image", options=in_degrees)
    return {"box_lists": boxes.turned(per_image)["rois"], "scales": pyramids.scales_of(case)}


_POOLER = System(
    "compat.detectron2.ROIPooler.forward",
    "compat.detectron2.ROIPooler.backward",
    options=(
        "spatial_scale",
        "sampling_ratio",
        "canonical_box_size",
        "canonical_level",
        "pooler_type",
    ),
    scales="powers of 2",
    samples="grid",
    boxes=_box_lists,
    names={"x": "features"},
    rounds_from="",
    pyramid=list,
    forms=boxes.PER_IMAGE,
    oracle=Oracle(LEVELS, pyramids.as_detectron2),
    is_semantics=False,
)
_MAXIMA = System(
    "multilevel_roi_pool",
    "multilevel_roi_pool_backward",
    returns=("pooled", "argmax"),
    bin_value="cell",
    pyramid=list,
)
SYSTEMS = {
    # Its operator is torchvision's: other implementations are compared with torchvision's row.
    "detectron2.ROIAlign": torchvision.SYSTEMS["torchvision.roi_align"].only_called(
        forward="compat.detectron2.ROIAlign.forward",
        names=names_of(detectron2.FORM),
        backward="compat.detectron2.ROIAlign.backward",
        rounds_from="",
        oracle=Oracle(ALIGN, pyramids.rounded_to_maps),
        goldens={"detectron2 ROIAlign": Answer("torchvision", "align")},
    ),
    "detectron2.ROIPooler": _POOLER,
    "detectron2.ROIPooler max": _POOLER._replace(
        options=("spatial_scale", "canonical_box_size", "canonical_level"),
        fixed={"pooler_type": "ROIPool", "sampling_ratio": 0, "return_argmax": True},
        returns=("pooled", "argmax"),
        samples="cells",
        bin_value="cell",
        oracle=Oracle(_MAXIMA, pyramids.as_detectron2, from_lowest),
    ),
    "detectron2.ROIPooler rotated": _POOLER._replace(
        options=_POOLER.options[:-1],
        fixed={"pooler_type": "ROIAlignRotated"},
        samples="points",
        boxes=_rotated_box_lists,
        without_oracle=DTYPES,
    ),
}
COMPARED = {
    "detectron2.ROIAlign": Compared(
        "torchvision.roi_align",
        {"aligned": True},
        libraries=("detectron2",),
        rules=ROI_ALIGN,
        example="detectron2.ROIAlign(2, 1.0, 2)(x, rois)",
    ),
}
