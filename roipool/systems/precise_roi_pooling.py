"""PreciseRoIPooling's systems: see `roipool.compat.precise_roi_pooling`."""

from __future__ import annotations

from roipool.compat import precise_roi_pooling
from roipool.systems.oracles import PRECISE
from roipool.systems.row import Compared, System, names_of

_NAMES = names_of(precise_roi_pooling.FORM, pooled_height="pooled_h", pooled_width="pooled_w")
_POOL = System(
    "compat.precise_roi_pooling.prroi_pool2d",
    "compat.precise_roi_pooling.prroi_pool2d_backward",
    "compat.precise_roi_pooling.prroi_pool2d_backward_rois",
    options=("spatial_scale",),
    samples="area",
    names=_NAMES,
    oracle=PRECISE,
    layers=("precise_roi_pooling.PrRoIPool2D",),
    compared={
        "precise_roi_pooling.prroi_pool2d": Compared(
            is_listed=False,
            example="precise_roi_pooling.prroi_pool2d(x, rois, 2, 2, 1.0)",
        )
    },
)
SYSTEMS = {"precise_roi_pooling.prroi_pool2d": _POOL}
