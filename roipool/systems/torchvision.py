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
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.core import LEVELS
from roipool.systems.core import SYSTEMS as CORE
from roipool.systems.oracles import ALIGN, POOL, from_lowest
from roipool.systems.row import Compared, FloatArray, Oracle, Results, System, names_of
from roipool.verification import pyramids
from roipool.verification.case import Case
from roipool.verification.released import Answer
from roipool.verification.released import Case as Golden

_NAMES = names_of(torchvision.FORM)
_LIBRARY = ("torchvision",)


def _aligned(case: Golden) -> Any:
    return torchvision.roi_align(
        case.features, case.rois, case.size, case.scale, case.sampling or -1, case.aligned
    )


def _aligned_gradient(case: Golden) -> Any:
    return torchvision.roi_align_backward(
        case.grad, case.rois, case.features.shape, case.scale, case.sampling or -1, case.aligned
    )


def _pooled(case: Golden) -> tuple[Any, Any]:
    pooled = torchvision.roi_pool(
        case.features, case.rois, case.size, case.scale, return_argmax=True
    )
    assert isinstance(pooled, tuple)
    return pooled


def _pooled_gradient(case: Golden) -> Any:
    return torchvision.roi_pool_backward(
        case.grad, _pooled(case)[1], case.rois, case.features.shape
    )


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
        "torchvision roi_pool": Answer("torchvision", "pool", lambda c: _pooled(c)[0], True),
        "torchvision roi_pool argmax": Answer(
            "torchvision", "pool_argmax", lambda c: _pooled(c)[1], True
        ),
        "torchvision roi_pool gradient": Answer("torchvision", "pool_grad", _pooled_gradient, True),
    },
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
        "torchvision roi_align": Answer("torchvision", "align", _aligned),
        "torchvision roi_align gradient": Answer("torchvision", "align_grad", _aligned_gradient),
    },
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
    "torchvision.RoIAlign": _ALIGN.only_called(
        forward="compat.torchvision.RoIAlign.forward",
        backward="compat.torchvision.RoIAlign.backward",
    ),
    "torchvision.RoIPool": _POOL.only_called(
        forward="compat.torchvision.RoIPool.forward", backward="", fixed={}, returns=("pooled",)
    ),
    "torchvision.ps_roi_pool": _PS_POOL,
    "torchvision.ps_roi_pool gradient": _PS_POOL.only_called(
        options=("spatial_scale", "exact_gradient"), fixed={}
    ),
    "torchvision.PSRoIPool": _PS_POOL.only_called(
        forward="compat.torchvision.PSRoIPool.forward", backward="", fixed={}
    ),
    "torchvision.ps_roi_align": _PS_ALIGN,
    "torchvision.PSRoIAlign": _PS_ALIGN.only_called(
        forward="compat.torchvision.PSRoIAlign.forward", backward=""
    ),
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
