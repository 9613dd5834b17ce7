"""Chainer's systems: see `roipool.compat.chainer`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roipool.compat import chainer
from roipool.systems import boxes, core
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.verification.case import Case


def _half_to_even(case: Case) -> Case:
    """Round boxes as Python does."""
    table = case.rois.copy()
    table[:, 1:] = np.rint(table[:, 1:] * case.options["spatial_scale"])
    return replace(case, rois=table, options={})


SYSTEMS = {
    "chainer.roi_average_pooling_2d": System(
        "compat.chainer.roi_average_pooling_2d", "compat.chainer.roi_average_pooling_2d_backward",
        options=("spatial_scale",), scales="above 0", boxes=boxes.y_first, finite=True,
        names=names_of(chainer.FORM),
        oracle=Oracle(
            core.SYSTEMS["roi_average_pool"]._replace(fixed={"edge_dtype": np.float64}),
            _half_to_even,
        ),
        compared={
            "chainer.roi_average_pooling_2d": Compared(
                example="chainer.roi_average_pooling_2d(x, yxyx, [0], 2, 1.0)"
            )
        },
    ),
}  # fmt: skip
