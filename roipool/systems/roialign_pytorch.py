"""RoIAlign.pytorch's systems: see `roipool.compat.roialign_pytorch`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool.compat import roialign_pytorch
from roipool.reference import ROI_ALIGN
from roipool.systems.boxes import fractions
from roipool.systems.case import Case
from roipool.systems.oracles import CROP
from roipool.systems.row import Compared, FloatArray, Oracle, System, names_of
from roipool.systems.stored import Answer
from roipool.systems.tensorflow import boxes_of

_NAMES = names_of(roialign_pytorch.FORM)


def _cells(case: Case) -> dict[str, Any]:
    return {"boxes": case.rois[:, 1:], "box_indices": case.images}


def _y_first(case: Case) -> dict[str, Any]:
    return {"boxes": case.rois[:, [2, 1, 4, 3]], "box_indices": case.images}


def _centres(case: Case) -> dict[str, Any]:
    """Return the fractions that ``RoIAlign`` passes to crop_and_resize: shifted bin centres."""
    boxes = case.rois[:, 1:] * np.float32(case.options["spatial_scale"])
    ends = [
        _first_and_last_centre(boxes[:, axis], boxes[:, axis + 2], bins, np.float32(size - 1))
        for axis, bins, size in zip((1, 0), case.size, case.maps.shape[2:], strict=True)
    ]
    (y1, y2), (x1, x2) = ends
    return {"boxes": np.stack([y1, x1, y2, x2], axis=1), "box_indices": case.images}


def _first_and_last_centre(
    low: FloatArray, high: FloatArray, bins: int, last: np.floating[Any]
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of a box as fractions, with the operations in RoIAlign.pytorch's order."""
    real = type(last)
    with np.errstate(all="ignore"):
        spacing = (high - low) / real(bins)
        first = (low + spacing / real(2) - real(0.5)) / last
        return first, first + spacing * real(bins - 1) / last


def _as_fractions(case: Case) -> Case:
    """Return the case with boxes as fractions."""
    table = case.rois.copy()
    for axis, (low, high) in enumerate(((2, 4), (1, 3))):
        with np.errstate(all="ignore"):
            first, last = (case.rois[:, end].astype(case.real) for end in (low, high))
            reach = case.real(case.maps.shape[2 + axis] - 1)
            if case.options["transform_fpcoor"]:
                first, last = _first_and_last_centre(first, last, case.size[axis], reach)
            else:
                first, last = first / reach, last / reach
        table[:, low], table[:, high] = first, last
    return replace(case, rois=table)


_CROP = System(
    "compat.roialign_pytorch.crop_and_resize",
    "compat.roialign_pytorch.crop_and_resize_backward",
    options=("extrapolation_value",),
    samples="one",
    boxes=fractions,
    names=_NAMES,
    oracle=Oracle(CROP),
    asked={"operation": "crop_and_resize"},
    goldens={
        "RoIAlign.pytorch crop_and_resize": Answer("tensorflow", "bilinear", options=boxes_of)
    },
    layers=("roialign_pytorch.CropAndResize",),
    compared={
        "roialign_pytorch.RoIAlign": Compared(
            boxes=_centres,
            rules=replace(ROI_ALIGN.of_boxes(aligned=True), ratio=1, border="zero"),
            example="roialign_pytorch.RoIAlign(2, 2)(x, xyxy, [0])",
        )
    },
)
SYSTEMS = {
    "roialign_pytorch.crop_and_resize": _CROP,
    "roialign_pytorch.RoIAlign": _CROP.only_called(
        forward="compat.roialign_pytorch.RoIAlign.forward",
        backward="compat.roialign_pytorch.RoIAlign.backward",
        options=("extrapolation_value", "transform_fpcoor"),
        boxes=_cells,
        names={**_NAMES, "featuremap": "features", "featuremap_size": "input_shape"},
        oracle=Oracle(CROP._replace(boxes=_y_first), _as_fractions),
    ),
}
