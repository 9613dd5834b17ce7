"""Chainer's systems: see `roipool.compat.chainer`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roipool.compat import chainer
from roipool.reference import ROI_ALIGN, ROI_AVERAGE_POOL, ROI_POOL
from roipool.systems import boxes, core
from roipool.systems.case import Case
from roipool.systems.oracles import ALIGN, POOL, from_minus_infinity
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer, largest_feature


def _half_to_even(case: Case) -> Case:
    """Round boxes to whole cells, halves to even."""
    table = case.rois.copy()
    table[:, 1:] = np.rint(table[:, 1:] * case.options["spatial_scale"])
    return replace(case, rois=table, options={})


def _not_aligned(case: Case) -> Case:
    return replace(case, options={**case.options, "aligned": False})


_WITHOUT_LAST = replace(ROI_POOL, extra="none")  # of the rows and columns of a rounded box
_INSIDE = replace(ROI_ALIGN, reduce="max", divisor="samples inside", empty=-np.inf)
_MAXIMUM = core.SYSTEMS["roi_align max"]


_POOLING = System(
    "compat.chainer.roi_pooling_2d",
    "compat.chainer.roi_pooling_2d_backward",
    options=("spatial_scale",),
    scales="above 0",
    fixed={"return_argmax": True, "exact_gradient": True},
    returns=("pooled", "argmax"),
    rounds_from="float64",
    finite=True,
    names=names_of(chainer.POOLING_FORM, outh="pooled_h", outw="pooled_w"),
    oracle=Oracle(
        POOL._replace(fixed={**POOL.fixed, "coordinate_dtype": np.float64}), _half_to_even
    ),
    goldens={
        "chainer roi_pooling_2d": Answer("chainer_pooling", "pool", exact=True),
        "chainer roi_pooling_2d argmax": Answer(
            "chainer_pooling",
            "pool_argmax",
            lambda got: np.maximum(got["argmax"], 0),  # Chainer's is 0 for empty bins
            exact=True,
        ),
    },
    gradient_options=("exact_gradient",),
    gradient={
        "goldens": {
            "chainer roi_pooling_2d gradient": Answer("chainer_pooling", "pool_grad", "gradient")
        }
    },
    compared={
        "chainer.roi_pooling_2d": Compared(
            of_gradient=True,
            oracle=("forward",),
            rules=replace(ROI_POOL, rounding="half even"),
            example="chainer.roi_pooling_2d(x, rois, 2, 2, 1.0)",
        )
    },
)
_MAX_POOLING = System(
    "compat.chainer.roi_max_pooling_2d",
    "compat.chainer.roi_max_pooling_2d_backward",
    scales="above 0",
    boxes=boxes.y_first,
    rounds_from="float64",
    finite=True,
    options=("spatial_scale",),
    fixed={"return_argmax": True},
    returns=("pooled", "argmax"),
    names=names_of(chainer.FORM),
    oracle=Oracle(
        POOL._replace(fixed={**POOL.fixed, "coordinate_dtype": np.float64, "rules": _WITHOUT_LAST}),
        _half_to_even,
        from_minus_infinity,
    ),
    goldens={
        "chainer roi_max_pooling_2d": Answer(
            "chainer_max_pooling", "pool", exact=True, terms=largest_feature
        ),
        "chainer roi_max_pooling_2d argmax": Answer(
            "chainer_max_pooling", "pool_argmax", "argmax", exact=True
        ),
        "chainer roi_max_pooling_2d gradient": Answer(
            "chainer_max_pooling", "pool_grad", "gradient"
        ),
    },
    compared={
        "chainer.roi_max_pooling_2d": Compared(
            is_listed=False,
            is_live=False,
            rules=replace(_WITHOUT_LAST, rounding="half even", empty=-np.inf),
            example="chainer.roi_max_pooling_2d(x, yxyx, [0], 2, 1.0)",
        )
    },
)
_AVERAGE_ALIGN = System(
    "compat.chainer.roi_average_align_2d",
    "compat.chainer.roi_average_align_2d_backward",
    scales="above 0",
    boxes=boxes.y_first,
    rounds_from="float64",
    finite=True,
    options=("spatial_scale", "sampling_ratio"),
    pairs=True,
    samples="grid",
    names=names_of(chainer.ALIGN_FORM),
    oracle=Oracle(
        ALIGN._replace(fixed={**ALIGN.fixed, "coordinate_dtype": np.float64}), _not_aligned
    ),
    goldens={
        "chainer roi_average_align_2d": Answer("chainer_align", "average"),
        "chainer roi_average_align_2d gradient": Answer(
            "chainer_align", "average_grad", "gradient"
        ),
    },
    compared={
        "chainer.roi_average_align_2d": Compared(
            is_listed=False,
            rules=ROI_ALIGN,
            example="chainer.roi_average_align_2d(x, yxyx, [0], 2, 1.0, 2)",
        )
    },
)
_MAX_ALIGN = _AVERAGE_ALIGN._replace(
    forward="compat.chainer.roi_max_align_2d",
    backward="compat.chainer.roi_max_align_2d_backward",
    fixed={"return_argmax": True},
    returns=("pooled", "argmax"),
    bin_value="sample",
    oracle=Oracle(
        _MAXIMUM._replace(
            fixed={**_MAXIMUM.fixed, "coordinate_dtype": np.float64, "skip_outside": True}
        ),
        _not_aligned,
        from_minus_infinity,
    ),
    goldens={
        "chainer roi_max_align_2d": Answer("chainer_align", "max", terms=largest_feature),
        "chainer roi_max_align_2d argmax": Answer(
            "chainer_align", "max_argmax", "argmax", exact=True
        ),
        "chainer roi_max_align_2d gradient": Answer("chainer_align", "max_grad", "gradient"),
    },
    compared={
        "chainer.roi_max_align_2d": Compared(
            is_listed=False,
            is_live=False,
            rules=_INSIDE,
            example="chainer.roi_max_align_2d(x, yxyx, [0], 2, 1.0, 2)",
        )
    },
)
SYSTEMS = {
    "chainer.roi_max_pooling_2d": _MAX_POOLING,
    "chainer.roi_average_align_2d": _AVERAGE_ALIGN,
    "chainer.roi_max_align_2d": _MAX_ALIGN,
    "chainer.roi_pooling_2d": _POOLING,
    "chainer.roi_average_pooling_2d": System(
        "compat.chainer.roi_average_pooling_2d",
        "compat.chainer.roi_average_pooling_2d_backward",
        stored=("chainer",),
        options=("spatial_scale",),
        scales="above 0",
        boxes=boxes.y_first,
        finite=True,
        names=names_of(chainer.FORM),
        oracle=Oracle(
            core.SYSTEMS["roi_average_pool"]._replace(fixed={"edge_dtype": np.float64}),
            _half_to_even,
        ),
        compared={
            "chainer.roi_average_pooling_2d": Compared(
                rules=replace(ROI_AVERAGE_POOL, rounding="half even"),
                example="chainer.roi_average_pooling_2d(x, yxyx, [0], 2, 1.0)",
            )
        },
    ),
}
