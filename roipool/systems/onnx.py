"""ONNX's systems: see `roipool.compat.onnx`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool.compat import onnx
from roipool.reference import CROP_AND_RESIZE, ONNX_ROI_ALIGN_MAX, ROI_ALIGN, ROI_POOL
from roipool.systems import boxes, core
from roipool.systems.case import Case
from roipool.systems.oracles import ALIGN, POOL, alone, from_own_lowest, single_scale
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer, Golden

_OPTIONS = ("spatial_scale", "sampling_ratio", "coordinate_transformation_mode")
_OPSET_10 = {"coordinate_transformation_mode": "output_half_pixel"}
_OPSET_16 = {"coordinate_transformation_mode": "half_pixel"}
_LIBRARY = ("onnxruntime",)


def _with_aligned(case: Case) -> Case:
    case = single_scale(case)
    aligned = case.options["coordinate_transformation_mode"] == "half_pixel"
    return replace(case, options=case.options | {"aligned": aligned})


def _of_opset_10(golden: Golden) -> dict[str, Any]:
    return _OPSET_10


def _of_opset_16(golden: Golden) -> dict[str, Any]:
    return _OPSET_16 if golden.aligned else _OPSET_10


_MEAN = System(
    "compat.onnx.RoiAlign",
    "compat.onnx.RoiAlign_backward",
    options=_OPTIONS,
    samples="grid",
    boxes=boxes.with_indices,
    names=names_of(onnx.ALIGN_FORM),
    finite=True,
    oracle=Oracle(ALIGN, _with_aligned),
    asked={"operation": "roi_align"},
    goldens={
        "onnxruntime opset 10 avg": Answer("onnxruntime", "v10_avg", options=_of_opset_10),
        "onnxruntime opset 16 avg": Answer("onnxruntime", "v16_avg", options=_of_opset_16),
    },
    compared={
        "onnx.RoiAlign[opset 10]": Compared(
            options=_OPSET_10,
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="onnx.RoiAlign(x, xyxy, [0], **bins, "
            "coordinate_transformation_mode='output_half_pixel')",
        ),
        "onnx.RoiAlign[opset 16]": Compared(
            options=_OPSET_16,
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="onnx.RoiAlign(x, xyxy, [0], **bins)",
        ),
    },
)
_MAX = _MEAN._replace(
    backward="",
    fixed={"mode": "max"},
    oracle=Oracle(alone("sample", "onnx_roi_align_max", "pooled"), _with_aligned),
    asked={"operation": "roi_align", "mode": "max of corners"},
    goldens={
        "onnxruntime opset 10 max": Answer(
            "onnxruntime", "v10_max", exact=True, options=_of_opset_10
        ),
        "onnxruntime opset 16 max": Answer(
            "onnxruntime", "v16_max", exact=True, options=_of_opset_16
        ),
    },
    gradient={"backward": "compat.onnx.RoiAlign_backward"},
    compared={
        "onnx.RoiAlign[max]": Compared(
            options=_OPSET_16,
            libraries=_LIBRARY,
            rules=ONNX_ROI_ALIGN_MAX,
            example="onnx.RoiAlign(x, xyxy, [0], **bins, mode='max')",
        )
    },
)
_POOL = System(
    "compat.onnx.MaxRoiPool",
    options=("spatial_scale",),
    scales="above 0",
    names=names_of(onnx.POOL_FORM),
    oracle=Oracle(
        POOL._replace(backward=""),
        single_scale,
        from_own_lowest,
        cannot_answer=lambda case: bool(np.isnan(case.maps).any()),  # a NaN restarts the maximum
    ),
    asked={"operation": "roi_pool"},
    goldens={"onnxruntime MaxRoiPool": Answer("onnxruntime", "maxroipool", exact=True)},
    gradient={"backward": "compat.onnx.MaxRoiPool_backward"},
    compared={
        "onnx.MaxRoiPool": Compared(
            libraries=_LIBRARY, rules=ROI_POOL, example="onnx.MaxRoiPool(x, rois, (2, 2))"
        )
    },
)
_CROP = System(
    "compat.onnx.CropAndResize",
    "compat.onnx.CropAndResize_backward",
    stored=("pinned_crops",),
    options=("extrapolation_value",),
    fixed={"mode": "bilinear"},
    samples="one",
    boxes=boxes.fractions,
    names=names_of(onnx.CROP_FORM),
    finite=True,
    oracle=Oracle(core.SYSTEMS["crop_and_resize"]),
    is_semantics=False,
    compared={
        "onnx.CropAndResize": Compared(
            is_listed=False,
            rules=replace(CROP_AND_RESIZE, spread="exact corners"),
            example="onnx.CropAndResize(x, fractions, [0], (2, 2))",
        )
    },
)
SYSTEMS = {
    "onnx.RoiAlign": _MEAN,
    "onnx.RoiAlign max": _MAX,
    "onnx.CropAndResize": _CROP,
    "onnx.CropAndResize nearest": _CROP.only_called(
        fixed={"mode": "nearest"},
        bin_value="cell",
        oracle=Oracle(core.SYSTEMS["crop_and_resize nearest"]),
    ),
    "onnx.MaxRoiPool": _POOL,
}
