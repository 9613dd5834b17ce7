"""Systems of rotated boxes: of mmcv, detectron2, MXNet and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from roipool.compat import _detectron2_rotated, mmcv, mxnet, openvino
from roipool.reference import ROI_ALIGN
from roipool.systems import boxes, core
from roipool.systems.case import Case
from roipool.systems.oracles import single_scale
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer, Golden

_ALIGN = core.SYSTEMS["roi_align_rotated"]
_ALIGN_BY_DEGREES = _ALIGN._replace(fixed={"rounds_angle": True})
_RIROI = System(
    "mmcv_riroi_align_rotated",
    "mmcv_riroi_align_rotated_backward",
    samples="points",
    boxes=boxes.turned,
)


# ---- Boxes, and the calls of the oracle


def _in_radians(case: Case) -> dict[str, Any]:
    return {"rois": boxes.turned(replace(case, form="table"))["rois"]}


def _with_indices(case: Case) -> dict[str, Any]:
    return {"rois": _in_radians(case)["rois"][:, 1:], "batch_indices": case.images}


def _with_angle_and_indices(case: Case) -> dict[str, Any]:
    return {"rois": boxes.with_angle(case)["rois"][:, 1:], "batch_indices": case.images}


def _in_degrees(case: Case) -> dict[str, Any]:
    return _in_radians(replace(case, options=case.options | {"angle_unit": "degrees"}))


def _asks_for(**fixed: Any) -> Callable[[Case], Case]:
    """Return an `Oracle.prepare` that adds the options that a system fixes."""

    def prepare(case: Case) -> Case:
        once = single_scale(case)
        return replace(once, options={**fixed, **once.options})

    return prepare


# ---- Answers of released programs


def _reach(golden: Golden) -> Any:
    """Return the largest distance of a sample from the centre of each box, in cells.

    A sine or cosine with another last bit moves a sample by one rounding for each cell.
    """
    sides = np.maximum(np.abs(golden.rois[:, 3:5]) * golden.scale, 1)
    return np.hypot(sides[:, 0], sides[:, 1]) / 2


def _terms(golden: Golden) -> Any:
    return ((1 + _reach(golden)) * np.abs(golden.features).max())[:, None, None, None]


def _gradient_terms(golden: Golden) -> Any:
    bins = np.abs(golden.grad).sum(axis=(1, 2, 3))
    return np.sum((1 + _reach(golden)) * bins) / golden.features.shape[1]


# ---- The rows


def _row(forward: str, backward: str, names: dict[str, str], **fields: Any) -> System:
    """Return a row; in float64 the last bit of a sine or cosine may differ from the oracle's."""
    return System(
        forward, backward, samples="points", names=names, without_oracle=("float64",), **fields
    )


def _asked(aligned: bool) -> dict[str, Any]:
    """Return the fields of an installed library's `Task`; angles are in radians."""
    return {"operation": "roi_align_rotated", "aligned": aligned}


_DEGREES = {"angle_unit": "degrees", "clockwise": False}
_MMCV = _row(
    "compat.mmcv.roi_align_rotated",
    "compat.mmcv.roi_align_rotated_backward",
    names_of(mmcv.ROTATED_FORM),
    options=("spatial_scale", "sampling_ratio", "aligned", "clockwise"),
    boxes=_in_radians,
    oracle=Oracle(_ALIGN, _asks_for(angle_unit="radians")),
    goldens={
        "mmcv roi_align_rotated": Answer("mmcv_rotated", "rotated", terms=_terms),
        "mmcv roi_align_rotated gradient": Answer(
            "mmcv_rotated", "rotated_grad", "gradient", terms=_gradient_terms
        ),
    },
    layers=("mmcv.RoIAlignRotated",),
    compared={
        "mmcv.roi_align_rotated": Compared(
            options={"aligned": True, "clockwise": False},
            boxes=boxes.with_angle,
            rotated=True,
            is_listed=False,
            libraries=("mmcv",),
            asked=_asked(aligned=True),
            rules=ROI_ALIGN,
            example="mmcv.roi_align_rotated(x, rotated, 2, 1.0, 2)",
        )
    },
)
_MMCV_RIROI = _row(
    "compat.mmcv.riroi_align_rotated",
    "compat.mmcv.riroi_align_rotated_backward",
    names_of(mmcv.RIROI_FORM, num_samples="sampling_ratio"),
    options=("spatial_scale", "sampling_ratio", "num_orientations", "clockwise"),
    boxes=_in_radians,
    oracle=Oracle(_RIROI, _asks_for(angle_unit="radians")),
    goldens={
        "mmcv riroi_align_rotated": Answer("mmcv_riroi", "riroi", terms=_terms),
        "mmcv riroi_align_rotated gradient": Answer(
            "mmcv_riroi", "riroi_grad", "gradient", terms=_gradient_terms
        ),
    },
    layers=("mmcv.RiRoIAlignRotated",),
)
_DETECTRON2 = _row(
    "compat.detectron2.ROIAlignRotated.forward",
    "compat.detectron2.ROIAlignRotated.backward",
    names_of(_detectron2_rotated.FORM),
    options=("spatial_scale", "sampling_ratio"),
    boxes=_in_degrees,
    oracle=Oracle(_ALIGN_BY_DEGREES, _asks_for(aligned=True, **_DEGREES)),
)
_MXNET = _row(
    "compat.mxnet.contrib_RROIAlign",
    "compat.mxnet.contrib_RROIAlign_backward",
    names_of(mxnet.ROTATED_FORM),
    options=("spatial_scale", "sampling_ratio"),
    scales="up to 1",
    boxes=_in_degrees,
    oracle=Oracle(_ALIGN_BY_DEGREES, _asks_for(aligned=False, **_DEGREES)),
    goldens={"mxnet contrib.RROIAlign": Answer("mxnet_rotated", "rotated", terms=_terms)},
    compared={
        "mxnet.contrib_RROIAlign": Compared(
            boxes=boxes.with_angle_in_degrees,
            rotated=True,
            is_listed=False,
            example="mxnet.contrib_RROIAlign(x, rotated_degrees, (2, 2), 1.0, 2)",
        )
    },
)
_OPENVINO = _row(
    "compat.openvino.ROIAlignRotated",
    "compat.openvino.ROIAlignRotated_backward",
    names_of(openvino.ROTATED_FORM, clockwise_mode="clockwise"),
    options=("spatial_scale", "sampling_ratio", "clockwise"),
    boxes=_with_indices,
    oracle=Oracle(_ALIGN, _asks_for(aligned=True, angle_unit="radians")),
    goldens={
        "openvino ROIAlignRotated": Answer("openvino", "rotated", terms=_terms),
    },
    compared={
        "openvino.ROIAlignRotated": Compared(
            options={"clockwise": False},
            boxes=_with_angle_and_indices,
            rotated=True,
            is_listed=False,
            rules=ROI_ALIGN.of_boxes(aligned=True),
            example="openvino.ROIAlignRotated(x, rotated[:, 1:], [0], 2, 2, 2, 1.0, False)",
        )
    },
)
SYSTEMS = {
    "mmcv.roi_align_rotated": _MMCV,
    "mmcv.riroi_align_rotated": _MMCV_RIROI,
    "detectron2.ROIAlignRotated": _DETECTRON2.only_called(),  # a class, not a function
    "mxnet.contrib_RROIAlign": _MXNET,
    "openvino.ROIAlignRotated": _OPENVINO,
}
COMPARED = {
    "detectron2.ROIAlignRotated": Compared(
        "mmcv.roi_align_rotated",
        {"aligned": True, "clockwise": False},
        boxes=boxes.with_angle,
        rotated=True,
        is_listed=False,
        libraries=("detectron2",),
        asked=_asked(aligned=True),
        rules=ROI_ALIGN,
        example="detectron2.ROIAlignRotated(2, 1.0, 2)(x, rotated_degrees)",
    ),
}
