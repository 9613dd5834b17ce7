"""torchvision's systems: see `roipool.compat.torchvision`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from roipool._dtypes import BYTES
from roipool.compat import torchvision
from roipool.reference import (
    ROI_ALIGN,
    ROI_POOL,
    TORCHVISION_PS_ROI_POOL,
    BoxOnMap,
    box_in_cells,
)
from roipool.systems import pyramids
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.case import Case
from roipool.systems.core import LEVELS
from roipool.systems.core import SYSTEMS as CORE
from roipool.systems.oracles import ALIGN, POOL, from_lowest
from roipool.systems.row import Compared, FloatArray, Oracle, System, names_of
from roipool.systems.stored import Answer, Results

_NAMES = names_of(torchvision.FORM)
_LIBRARY = ("torchvision",)


def _nan_without_samples(case: Case, results: Results) -> Results:
    """Let the average of a grid of 0 samples, neither more nor less, be 0 / 0."""
    if case.options["sampling_ratio"] > 0:
        return results
    pooled = results["pooled"].copy()
    for k, box in enumerate(case.rois[:, 1:].tolist()):
        place = BoxOnMap(
            tuple(box), case.size, case.maps.shape[2:], case.options["spatial_scale"], 0, case.real
        )
        x1, y1, x2, y2 = box_in_cells(ROI_ALIGN.of_boxes(True), place)
        sides = [
            (case.real(end) - case.real(start)) / case.real(bins)
            for start, end, bins in ((y1, y2, case.size[0]), (x1, x2, case.size[1]))
        ]
        if all(map(math.isfinite, sides)) and 0 in map(math.ceil, sides):
            pooled[k] = math.nan
    return results | {"pooled": pooled}


def _from_zero_point(case: Case) -> Case:
    """Return the numbers of steps from 0 that the codes stand for."""
    return replace(case, maps=case.maps - case.options["input_zero_point"])


def _as_codes(case: Case, results: Results) -> Results:
    """Return the codes for numbers of steps from 0, not yet rounded."""
    limits = np.iinfo(case.dtype)
    codes = results["pooled"] + case.options["input_zero_point"]
    return {"pooled": codes.clip(limits.min, limits.max)}


def _largest_code(case: Case) -> FloatArray:
    """Return a bound for each box: sums are of codes and of the zero point, subtracted after."""
    largest = max(1.0, np.abs(case.maps).max(initial=0.0))
    share = abs(case.options["input_zero_point"]) / largest
    return np.full(len(case.rois), 1 + share, np.float32)


def _of_pictures(case: Case) -> dict[str, Any]:
    pictures = [pyramids.picture_of(case)] * max(1, len(case.maps))
    return {"boxes": pyramids.tables_of_images(case), "image_shapes": pictures}


_POOL = System(
    "compat.torchvision.roi_pool",
    "compat.torchvision.roi_pool_backward",
    options=("spatial_scale",),
    fixed={"return_argmax": True},
    returns=("pooled", "argmax"),
    names=_NAMES,
    oracle=Oracle(POOL, finish=from_lowest),
    asked={"operation": "roi_pool"},
    goldens={
        "torchvision roi_pool": Answer("torchvision", "pool", exact=True),
        "torchvision roi_pool argmax": Answer("torchvision", "pool_argmax", "argmax", exact=True),
        "torchvision roi_pool gradient": Answer("torchvision", "pool_grad", "gradient", exact=True),
    },
    layers=("torchvision.RoIPool",),
    compared={
        "torchvision.roi_pool": Compared(
            libraries=_LIBRARY, rules=ROI_POOL, example="torchvision.roi_pool(x, rois, 2)"
        )
    },
)
_ALIGN = System(
    "compat.torchvision.roi_align",
    "compat.torchvision.roi_align_backward",
    samples="grid",
    options=("spatial_scale", "sampling_ratio", "aligned"),
    names=_NAMES,
    oracle=Oracle(ALIGN),
    asked={"operation": "roi_align"},
    goldens={
        "torchvision roi_align": Answer("torchvision", "align"),
        "torchvision roi_align gradient": Answer("torchvision", "align_grad", "gradient"),
    },
    layers=("torchvision.RoIAlign",),
    compared={
        "torchvision.roi_align": Compared(
            options={"aligned": False},
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="torchvision.roi_align(x, rois, 2, 1.0, 2)",
        ),
        "torchvision.roi_align[aligned]": Compared(
            options={"aligned": True},
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="torchvision.roi_align(x, rois, 2, 1.0, 2, aligned=True)",
        ),
    },
)
_PS_POOL = System(
    "compat.torchvision.ps_roi_pool",
    "compat.torchvision.ps_roi_pool_backward",
    stored=("torchvision_ps",),
    options=("spatial_scale",),
    fixed={"exact_gradient": True},
    names=_NAMES,
    is_position_sensitive=True,
    oracle=Oracle(CORE["ps_roi_pool"]._replace(fixed={"rules": TORCHVISION_PS_ROI_POOL})),
    layers=("torchvision.PSRoIPool",),
    gradient_options=("exact_gradient",),
    compared={
        "torchvision.ps_roi_pool": Compared(
            is_listed=False,
            rules=TORCHVISION_PS_ROI_POOL,
            example="torchvision.ps_roi_pool(x_of_groups, rois, 2)",
        )
    },
)
_PS_ALIGN = System(
    "compat.torchvision.ps_roi_align",
    "compat.torchvision.ps_roi_align_backward",
    stored=("torchvision_ps",),
    options=("spatial_scale", "sampling_ratio"),
    samples="grid",
    names=_NAMES,
    is_position_sensitive=True,
    oracle=Oracle(CORE["ps_roi_align"], finish=_nan_without_samples),
    layers=("torchvision.PSRoIAlign",),
    compared={
        # No rules: those of NaN for a flat box, and 0 for a reversed one, have no name.
        "torchvision.ps_roi_align": Compared(
            is_listed=False,
            example="torchvision.ps_roi_align(x_of_groups, rois, 2, 1.0, 2)",
        )
    },
)
_QUANTISED = System(
    "compat.torchvision.qroi_align",
    stored=("torchvision_quantised",),
    options=("spatial_scale", "sampling_ratio", "aligned", "input_scale", "input_zero_point"),
    samples="grid",
    names=names_of(torchvision.QUANTISED_FORM),
    dtypes=BYTES,
    rounds_from="",
    returns_codes=True,
    oracle=Oracle(ALIGN, _from_zero_point, _as_codes, largest_sum=_largest_code),
    is_semantics=False,
)
SYSTEMS = {
    "torchvision.roi_pool": _POOL,
    "torchvision.roi_align": _ALIGN,
    "torchvision.ps_roi_pool": _PS_POOL,
    "torchvision.ps_roi_align": _PS_ALIGN,
    "torchvision.qroi_align": _QUANTISED,
    "torchvision.MultiScaleRoIAlign": System(
        "compat.torchvision.MultiScaleRoIAlign.forward",
        "compat.torchvision.MultiScaleRoIAlign.backward",
        stored=("torchvision_multiscale",),
        options=("spatial_scale", "sampling_ratio", "canonical_scale", "canonical_level"),
        scales="powers of 2",
        fixed={"featmap_names": ["0", "1", "2"]},
        samples="grid",
        boxes=_of_pictures,
        names={"x": "features"},
        takes_no_rows=False,
        forms=PER_IMAGE,
        pyramid=pyramids.by_name,
        oracle=Oracle(LEVELS, pyramids.as_torchvision),
        is_semantics=False,
    ),
}
