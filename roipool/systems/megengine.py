"""MegEngine's systems: see `roipool.compat.megengine`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roipool.compat import megengine
from roipool.reference import DEFORMABLE_PS_ROI_POOL, ROI_POOL, Rules
from roipool.systems import boxes, core
from roipool.systems.case import Case
from roipool.systems.oracles import (
    ALIGN,
    LOWEST_FLOAT32,
    POOL,
    from_lowest,
    single_numbers,
    single_scale,
)
from roipool.systems.row import Compared, Oracle, System, names_of

_RULES = Rules(shift=(0.0, 0.5), border="drop", minimum=0.0, adaptive="always 0")
_CELLS = replace(ROI_POOL, reduce="mean")
_FIXED: dict[str, Any] = {"rules": _RULES, "order": "megengine"}
_MAXIMUM = core.SYSTEMS["roi_align max"]


def _has_no_samples(case: Case) -> bool:
    """Return whether the number of samples is 0: not adaptive, as in the oracle."""
    ratio = case.options["sampling_ratio"]
    return not (ratio if isinstance(ratio, int) else math.prod(ratio))


def _compared(mode: str, rules: Rules) -> Compared:
    return Compared(
        options={"aligned": True},
        is_listed=False,
        rules=rules,
        example=f"megengine.roi_align(x, rois, 2, {mode!r})",
    )


_AVERAGE = System(
    "compat.megengine.roi_align",
    "compat.megengine.roi_align_backward",
    stored=("megengine",),
    options=("spatial_scale", "sampling_ratio", "aligned"),
    pairs=True,
    fixed={"mode": "average"},
    samples="grid",
    names=names_of(megengine.FORM, sample_points="sampling_ratio"),
    oracle=Oracle(
        ALIGN._replace(fixed={**ALIGN.fixed, **_FIXED}), single_scale, cannot_answer=_has_no_samples
    ),
    compared={"megengine.roi_align": _compared("average", _RULES)},
)
_MAX = _AVERAGE._replace(
    backward="",
    fixed={"mode": "max"},
    bin_value="sample",
    oracle=Oracle(
        _MAXIMUM._replace(backward="", fixed={**_MAXIMUM.fixed, **_FIXED}),
        single_scale,
        from_lowest,
        cannot_answer=_has_no_samples,
    ),
    gradient={"backward": "compat.megengine.roi_align_backward"},
    compared={
        "megengine.roi_align[max]": _compared(
            "max", replace(_RULES, reduce="max", empty=LOWEST_FLOAT32)
        )._replace(of_gradient=True, oracle=("forward",))
    },
)
_POOLED = System(
    "compat.megengine.roi_pooling",
    stored=("megengine_pooling",),
    options=("spatial_scale",),
    fixed={"mode": "max"},
    names=names_of(megengine.FORM, scale="spatial_scale"),
    oracle=Oracle(POOL._replace(backward=""), single_scale, from_lowest),
    gradient_options=("exact_gradient",),
    gradient={"backward": "compat.megengine.roi_pooling_backward"},
    compared={
        "megengine.roi_pooling": Compared(
            of_gradient=True,
            is_listed=False,
            oracle=("forward",),
            rules=ROI_POOL,
            example="megengine.roi_pooling(x, rois, 2)",
        )
    },
)
_MEAN_OF_CELLS = _POOLED._replace(
    backward="compat.megengine.roi_pooling_backward",
    fixed={"mode": "average", "exact_gradient": True},
    oracle=Oracle(core.SYSTEMS["roi_average_pool"]._replace(fixed={"rules": _CELLS}), single_scale),
    gradient={},
    compared={
        "megengine.roi_pooling[average]": Compared(
            is_listed=False,
            rules=_CELLS,
            example="megengine.roi_pooling(x, rois, 2, 'average')",
        )
    },
)
_CORE_DEFORMABLE = core.SYSTEMS["deformable_ps_roi_pool"]._replace(boxes=boxes.with_offsets)


def _with_offsets(case: Case) -> dict[str, Any]:
    """Return boxes with an offset for each bin, and the numbers of bins and parts."""
    rows, columns = case.size
    sizes = {"pooled_h": rows, "pooled_w": columns, "part_size": case.size}
    return {**boxes.with_offsets(case), **sizes, "no_trans": False}


def _of_all_channels(case: Case) -> Case:
    case = single_numbers(case)
    return replace(case, options=case.options | {"group_size": 1})


_DEFORMABLE = System(
    "compat.megengine.deformable_psroi_pooling",
    "compat.megengine.deformable_psroi_pooling_backward",
    offset_gradient="compat.megengine.deformable_psroi_pooling_backward_trans",
    options=("spatial_scale", "samples", "gamma"),
    samples="grid",
    boxes=_with_offsets,
    forms=("table",),
    names=names_of(
        megengine.DEFORMABLE_FORM,
        trans="offsets",
        sample_per_part="samples",
        trans_std="gamma",
    ),
    oracle=Oracle(_CORE_DEFORMABLE, _of_all_channels),
    stored=("megengine_deformable",),
    compared={
        "megengine.deformable_psroi_pooling": Compared(
            options={"gamma": 0.1},
            boxes=boxes.unmoved(_with_offsets),
            is_listed=False,
            is_live=False,
            rules=DEFORMABLE_PS_ROI_POOL,
            example="megengine.deformable_psroi_pooling(x, rois, offsets, False, 2, 2, 2, 2, 1.0)",
        )
    },
)
SYSTEMS = {
    "megengine.roi_pooling average": _MEAN_OF_CELLS,
    "megengine.roi_pooling": _POOLED,
    "megengine.roi_align": _AVERAGE,
    "megengine.roi_align max": _MAX,
    "megengine.deformable_psroi_pooling": _DEFORMABLE,
}
