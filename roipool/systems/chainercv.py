"""ChainerCV's systems: see `roipool.compat.chainercv`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roipool.compat import chainercv
from roipool.reference import Rules
from roipool.systems import boxes, core
from roipool.systems.oracles import from_minus_infinity
from roipool.systems.row import Compared, Oracle, System, names_of

_CELLS = Rules(minimum=0.1, samples="cells")
_SAMPLES = Rules(minimum=0.1)
_IN_FLOAT64 = {"coordinate_dtype": np.float64}
_ARGMAX = {"return_argmax": True}


def _maximum(name: str, rules: Rules, **fixed: bool) -> Oracle:
    """Return the oracle of a maximum: bins without samples are -inf, not 0."""
    operation = core.SYSTEMS[name]
    fixed_too = {**operation.fixed, **_IN_FLOAT64, "rules": rules, **fixed}
    return Oracle(operation._replace(fixed=fixed_too), finish=from_minus_infinity)


def _compared(function: str, rules: Rules, ratio: str = "") -> dict[str, Compared]:
    call = f"chainercv.{function}(x_of_groups, yxyx, [0], 2, 1.0, 2{ratio})"
    one = Compared(
        options={"group_size": 0},
        is_listed=False,
        is_live=False,
        rules=rules,
        example=call,
    )
    return {f"chainercv.{function}": one}


def _average(name: str, rules: Rules) -> Oracle:
    return Oracle(core.SYSTEMS[name]._replace(fixed={**_IN_FLOAT64, "rules": rules}))


_AVERAGE_POOLING = System(
    "compat.chainercv.ps_roi_average_pooling_2d",
    "compat.chainercv.ps_roi_average_pooling_2d_backward",
    options=("spatial_scale", "group_size"),
    stored=("chainercv",),
    scales="above 0",
    boxes=boxes.y_first,
    rounds_from="float64",
    finite=True,
    names=names_of(chainercv.FORM),
    is_position_sensitive=True,
    oracle=_average("ps_roi_pool", _CELLS),
    compared=_compared("ps_roi_average_pooling_2d", _CELLS),
)
_MAX_POOLING = _AVERAGE_POOLING._replace(
    forward="compat.chainercv.ps_roi_max_pooling_2d",
    backward="compat.chainercv.ps_roi_max_pooling_2d_backward",
    fixed=_ARGMAX,
    returns=("pooled", "argmax"),
    oracle=_maximum("roi_pool", replace(_CELLS, reduce="max")),
    compared=_compared("ps_roi_max_pooling_2d", replace(_CELLS, reduce="max", empty=-np.inf)),
)
_AVERAGE_ALIGN = _AVERAGE_POOLING._replace(
    forward="compat.chainercv.ps_roi_average_align_2d",
    backward="compat.chainercv.ps_roi_average_align_2d_backward",
    options=("spatial_scale", "group_size", "sampling_ratio"),
    pairs=True,
    samples="grid",
    oracle=_average("ps_roi_align", _SAMPLES),
    compared=_compared("ps_roi_average_align_2d", _SAMPLES, ", 2"),
)
_MAX_ALIGN = _AVERAGE_ALIGN._replace(
    forward="compat.chainercv.ps_roi_max_align_2d",
    backward="compat.chainercv.ps_roi_max_align_2d_backward",
    fixed=_ARGMAX,
    returns=("pooled", "argmax"),
    bin_value="sample",
    oracle=_maximum("roi_align max", _SAMPLES, skip_outside=True),
    compared=_compared(
        "ps_roi_max_align_2d",
        replace(_SAMPLES, reduce="max", divisor="samples inside", empty=-np.inf),
        ", 2",
    ),
)
SYSTEMS = {
    "chainercv.ps_roi_average_pooling_2d": _AVERAGE_POOLING,
    "chainercv.ps_roi_max_pooling_2d": _MAX_POOLING,
    "chainercv.ps_roi_average_align_2d": _AVERAGE_ALIGN,
    "chainercv.ps_roi_max_align_2d": _MAX_ALIGN,
}
