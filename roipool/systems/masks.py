"""Rows for masks: the case's maps have one channel, and each of them is a mask.

A mask that is pasted belongs to a box: the box's image is the number of its mask, and the bins of a
box are the pixels of a picture. Masks that are cut out for boxes are maps like others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool.systems.case import STORAGES, Case, dtypes
from roipool.systems.oracles import ALIGN
from roipool.systems.row import DTYPES, Oracle, System
from roipool.systems.stored import Results


def one_of_each_box(case: Case) -> dict[str, Any]:
    """Return a mask for each box, in the order of boxes, and the boxes."""
    masks = case.maps[case.images].astype(dtypes()[case.dtype])
    return {
        "features": STORAGES[case.storage].store(masks),
        "boxes": case.rois[:, 1:],
        "input_shape": masks.shape,
    }


def with_pictures(case: Case) -> dict[str, Any]:
    """Return masks without an axis of channels, and boxes with the picture of each."""
    masks = case.maps[:, 0].astype(dtypes()[case.dtype])
    return {
        "features": STORAGES[case.storage].store(masks),
        "boxes": case.rois[:, 1:],
        "batch_indices": case.images,
    }


def of_maps(case: Case, kind: str, results: Results) -> Results:
    """Return results with an axis of channels, and the gradient of masks as that of the maps."""
    if kind == "cut":
        return {name: array[:, np.newaxis] for name, array in results.items()}
    if "gradient" in results:
        gradient = np.zeros(case.maps.shape, results["gradient"].dtype)
        gradient[case.images] = results["gradient"]
        results = {**results, "gradient": gradient}
    return results


def _like_roi_align(case: Case) -> Case:
    """Return a case with the options of ROI align that targets are cut with."""
    options = {"spatial_scale": 1.0, "sampling_ratio": 0, "aligned": True}
    return replace(case, options=options)


def _framed(case: Case) -> Case:
    """Return a case with boxes of whole pixels, as torchvision grows them with the padding."""
    columns, frame = case.maps.shape[3], case.options["padding"]
    with np.errstate(all="ignore"):
        low, high = case.rois[:, 1:3], case.rois[:, 3:5]
        reach = (high - low) * 0.5 * ((columns + 2 * frame) / columns)
        middle = (high + low) * 0.5
        corners = np.trunc(middle - reach), np.trunc(middle + reach) + 1
        whole = np.hstack([case.rois[:, :1], *corners]).astype(case.real).astype(np.float64)
    return replace(case, rois=whole)


_NAMES = {"masks": "features", "image_size": "output_size", "masks_shape": "input_shape"}
_PASTED = System(
    "paste_masks",
    "paste_masks_backward",
    "paste_masks_backward_boxes",
    samples="one",
    boxes=one_of_each_box,
    names=_NAMES,
    dtypes=(*DTYPES, "uint8"),
    forms=("table",),
    masks="pasted",
    is_semantics=False,
)
_CUT = System(
    "crop_masks",
    samples="grid",
    boxes=with_pictures,
    names={"masks": "features", "indices": "batch_indices", "size": "output_size"},
    dtypes=(*DTYPES, "uint8"),
    forms=("table",),
    masks="cut",
    oracle=Oracle(ALIGN, _like_roi_align),
    is_semantics=False,
)
_FRAMED = _PASTED._replace(
    box_gradient="", fixed={"rule": "resized"}, names={**_NAMES, "frame": "padding"}
)
SYSTEMS = {
    "paste_masks": _PASTED,
    "crop_masks": _CUT,
    "torchvision.paste_masks_in_image": _PASTED._replace(
        forward="compat.torchvision.paste_masks_in_image",
        backward="compat.torchvision.paste_masks_in_image_backward",
        box_gradient="",
        options=("padding",),
        names={**_NAMES, "img_shape": "output_size"},
        dtypes=DTYPES,
        takes_no_rows=False,
        oracle=Oracle(_FRAMED, _framed),
        stored=("masks",),
    ),
    "mmdet.crop_and_resize": _CUT._replace(
        forward="compat.mmdet.crop_and_resize",
        fixed={"binarize": False},
        names={
            "masks": "features",
            "bboxes": "boxes",
            "inds": "batch_indices",
            "out_shape": "output_size",
        },
    ),
}
OF_CORE = tuple(name for name in SYSTEMS if "." not in name)
