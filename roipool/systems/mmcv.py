"""mmcv's systems: see `roipool.compat.mmcv`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool.compat import mmcv
from roipool.reference import MMCV_ROI_ALIGN_MAX, MMCV_ROI_POOL, ROI_ALIGN
from roipool.systems import boxes, torchvision
from roipool.systems.core import SYSTEMS as CORE
from roipool.systems.oracles import (
    ALIGN,
    LOWEST_FLOAT32,
    PRECISE,
    alone,
    single_numbers,
    single_scale,
)
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer, Golden, largest_feature

_NAMES = names_of(mmcv.FORM)
_OPTIONS = ("spatial_scale", "sampling_ratio", "aligned")
_ALIGNED = {"aligned": True}
_ARGMAX = {"return_argmax": True}
_LIBRARY = ("mmcv",)


def _parts_of_a_cell(golden: Golden) -> Any:
    """Return the sides of each box's bins in cells, at most 1; 1 for bins without area.

    mmcv adds up terms of about 1 in float32 before it divides them by the area of the bin.
    """
    sides = (
        np.maximum((golden.rois[:, 3:] - golden.rois[:, 1:3]) * golden.scale, 0) / golden.size[::-1]
    )
    return np.where(np.all(sides > 0, axis=1, keepdims=True), np.minimum(sides, 1), 1)


def _precise_terms(golden: Golden) -> Any:
    largest = np.abs(golden.features).max()
    return largest / np.prod(_parts_of_a_cell(golden), axis=1)[:, None, None, None]


def _precise_gradient_terms(golden: Golden) -> Any:
    return np.max(np.abs(golden.grad).max() / np.prod(_parts_of_a_cell(golden), axis=1))


def _precise_box_gradient_terms(golden: Golden) -> Any:
    parts = _parts_of_a_cell(golden)
    sums = np.abs(golden.grad).sum(axis=(1, 2, 3)) * np.abs(golden.features).max() * golden.scale
    return (sums / np.prod(parts, axis=1) / np.min(parts, axis=1))[:, None]


_MEAN = System(
    "compat.mmcv.roi_align",
    "compat.mmcv.roi_align_backward",
    options=_OPTIONS,
    samples="grid",
    fixed={"argmax_y": None, "argmax_x": None},
    names=_NAMES,
    oracle=Oracle(ALIGN._replace(fixed={"count_dtype": np.float32}), single_scale),
    asked={"operation": "roi_align"},
    goldens={
        "mmcv roi_align avg": Answer("mmcv", "avg"),
        "mmcv roi_align avg gradient": Answer("mmcv", "avg_grad", "gradient"),
    },
    layers=("mmcv.RoIAlign",),
    compared={
        "mmcv.roi_align": Compared(
            options=_ALIGNED,
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="mmcv.roi_align(x, rois, 2, 1.0, 2)",
        )
    },
)
_MAX_ORACLE = Oracle(
    alone("sample", "mmcv_roi_align_max", "pooled", "argmax_y", "argmax_x"),
    single_scale,
    cannot_answer=lambda case: 0 in case.maps.shape[2:],  # mmcv reads beyond such a map
)
_MAX = System(
    "compat.mmcv.roi_align",
    options=_OPTIONS,
    samples="grid",
    fixed={"pool_mode": "max", "operator": "cpu", **_ARGMAX},
    returns=("pooled", "argmax_y", "argmax_x"),
    names=_NAMES,
    oracle=_MAX_ORACLE,
    asked={"operation": "roi_align", "mode": "max"},
    goldens={
        "mmcv roi_align max": Answer("mmcv", "max", exact=True),
        "mmcv roi_align max y": Answer("mmcv", "max_y", "argmax_y", exact=True),
        "mmcv roi_align max x": Answer("mmcv", "max_x", "argmax_x", exact=True),
    },
    layers=("mmcv.RoIAlign max",),
    gradient_options=("exact_gradient",),
    gradient={
        "backward": "compat.mmcv.roi_align_backward",
        "goldens": {"mmcv roi_align max gradient": Answer("mmcv", "max_grad", "gradient")},
    },
    compared={
        "mmcv.roi_align[max]": Compared(
            of_gradient=True,
            options=_ALIGNED,
            libraries=_LIBRARY,
            rules=MMCV_ROI_ALIGN_MAX,
            example="mmcv.roi_align(x, rois, 2, 1.0, 2, 'max')",
        )
    },
)
_POOL = System(
    "compat.mmcv.roi_pool",
    options=("spatial_scale",),
    fixed=_ARGMAX,
    returns=("pooled", "argmax"),
    names=_NAMES,
    oracle=Oracle(alone("cell", "mmcv_roi_pool", "pooled", "argmax"), single_scale),
    asked={"operation": "roi_pool"},
    layers=("mmcv.RoIPool",),
    gradient_options=("exact_gradient",),
    gradient={"backward": "compat.mmcv.roi_pool_backward"},
    compared={
        "mmcv.roi_pool": Compared(
            of_gradient=True,
            libraries=_LIBRARY,
            rules=MMCV_ROI_POOL,
            example="mmcv.roi_pool(x, rois, 2)",
        )
    },
)
_PRECISE = System(
    "compat.mmcv.prroi_pool",
    "compat.mmcv.prroi_pool_backward",
    "compat.mmcv.prroi_pool_backward_rois",
    options=("spatial_scale",),
    samples="area",
    names=names_of(mmcv.PRECISE_FORM),
    oracle=PRECISE,
    goldens={
        "mmcv prroi_pool": Answer("mmcv_prroi", "pool", terms=_precise_terms),
        "mmcv prroi_pool gradient": Answer(
            "mmcv_prroi", "pool_grad", "gradient", terms=_precise_gradient_terms
        ),
        "mmcv prroi_pool box gradient": Answer(
            "mmcv_prroi", "pool_grad_rois", "box_gradient", terms=_precise_box_gradient_terms
        ),
    },
    layers=("mmcv.PrRoIPool",),
    compared={"mmcv.prroi_pool": Compared(is_listed=False, example="mmcv.prroi_pool(x, rois, 2)")},
)
# mmcv counts adaptive samples in float32.
_DEFORM_ORACLE = CORE["deform_roi_pool"]._replace(fixed={"count_dtype": np.float32})


def _deform_gradient_terms(golden: Golden) -> Any:
    return np.abs(golden.grad).sum(axis=(0, 2, 3)).max()


def _offset_terms(golden: Golden) -> Any:
    """Return bounds on the sums of slopes of each bin, by x and y."""
    sides = np.abs(golden.rois[:, 3:] - golden.rois[:, 1:3]) * golden.scale * golden.record["gamma"]
    upstream = np.abs(golden.grad).sum(axis=1, keepdims=True)
    return 2 * upstream * np.abs(golden.features).max() * sides[:, :, None, None]


def _offsets(golden: Golden) -> dict[str, Any]:
    return {"offsets": golden.inputs.get("offset")}


_DEFORM = System(
    "compat.mmcv.deform_roi_pool",
    "compat.mmcv.deform_roi_pool_backward",
    offset_gradient="compat.mmcv.deform_roi_pool_backward_offset",
    options=("spatial_scale", "sampling_ratio", "gamma"),
    fixed={"exact_gradient": True},
    samples="grid",
    boxes=boxes.with_offsets,
    forms=("table",),
    names=names_of(mmcv.DEFORM_FORM, offset="offsets"),
    oracle=Oracle(_DEFORM_ORACLE, single_numbers),
    goldens={
        "mmcv deform_roi_pool": Answer(
            "mmcv_deform", "deform", terms=largest_feature, options=_offsets
        )
    },
    layers=("mmcv.DeformRoIPool",),
    gradient_options=("exact_gradient",),
    gradient={
        "goldens": {
            "mmcv deform_roi_pool gradient": Answer(
                "mmcv_deform",
                "deform_grad",
                "gradient",
                terms=_deform_gradient_terms,
                options=_offsets,
            ),
            "mmcv deform_roi_pool offset gradient": Answer(
                "mmcv_deform",
                "deform_grad_offset",
                "offset_gradient",
                terms=_offset_terms,
                options=_offsets,
            ),
        }
    },
    compared={
        "mmcv.deform_roi_pool": Compared(
            options={"gamma": 0.1},
            boxes=boxes.unmoved(boxes.with_offsets),
            is_listed=False,
            is_live=False,
            asked=_ALIGNED,
            rules=ROI_ALIGN,
            example="mmcv.deform_roi_pool(x, rois, offsets, 2, 1.0, 2)",
        )
    },
)
SYSTEMS = {
    "mmcv.roi_align": _MEAN,
    "mmcv.roi_align max": _MAX,
    "mmcv.roi_align max of CUDA": _MAX.only_called(
        fixed={**_MAX.fixed, "operator": "cuda"},
        oracle=_MAX_ORACLE._replace(
            operation=_MAX_ORACLE.operation._replace(fixed={"start": LOWEST_FLOAT32})
        ),
    ),
    "mmcv.roi_pool": _POOL,
    "mmcv.RoIAlign torchvision": torchvision.SYSTEMS["torchvision.roi_align"].only_called(
        forward="compat.mmcv.RoIAlign.forward", backward="", fixed={"use_torchvision": True}
    ),
    "mmcv.prroi_pool": _PRECISE,
    "mmcv.deform_roi_pool": _DEFORM,
}
