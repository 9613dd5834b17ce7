"""MXNet's systems: see `roipool.compat.mxnet`."""

from __future__ import annotations

from typing import Any

from roipool.compat import mxnet
from roipool.reference import (
    DEFORMABLE_PS_ROI_POOL,
    MXNET_ROI_ALIGN,
    PS_ROI_POOL,
    ROI_ALIGN,
    ROI_POOL,
)
from roipool.systems import boxes
from roipool.systems.case import Case
from roipool.systems.core import SYSTEMS as CORE
from roipool.systems.oracles import (
    ALIGN,
    MAXIMUM_OF_CELLS,
    POOL,
    alone,
    of_each_bin,
    single_scale,
)
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer

_NAMES = names_of(mxnet.FORM, sample_ratio="sampling_ratio")
_ARGMAX = {"return_argmax": True}


_POOLING = System(
    "compat.mxnet.ROIPooling",
    options=("spatial_scale",),
    scales="up to 1",
    names=_NAMES,
    oracle=MAXIMUM_OF_CELLS._replace(operation=POOL._replace(backward="")),
    asked={"operation": "roi_pool"},
    goldens={
        "mxnet ROIPooling": Answer("mxnet", "pool", exact=True),
    },
    gradient={
        "backward": "compat.mxnet.ROIPooling_backward",
        "returns": ("pooled", "argmax"),
        "fixed": _ARGMAX,
        "argmax_is_of_batch": True,
        "goldens": {
            "mxnet ROIPooling gradient": Answer("mxnet", "pool_grad", "gradient", exact=True)
        },
    },
    compared={
        "mxnet.ROIPooling": Compared(
            of_gradient=True,
            libraries=("mxnet",),
            rules=ROI_POOL,
            example="mxnet.ROIPooling(x, rois, (2, 2), 1.0)",
        )
    },
)
_ALIGN = System(
    "compat.mxnet.ROIAlign",
    options=("spatial_scale",),
    scales="up to 1",
    fixed=_ARGMAX,
    returns=("pooled", "argmax_x", "argmax_y"),
    names=_NAMES,
    oracle=Oracle(
        alone("sample", "mxnet_roi_align", "pooled", "argmax_x", "argmax_y"), single_scale
    ),
    gradient_options=("exact_gradient",),
    gradient={
        "backward": "compat.mxnet.ROIAlign_backward",
        "names": {**_NAMES, "maxidx_x": "argmax_x", "maxidx_y": "argmax_y"},
    },
    compared={
        "mxnet.ROIAlign": Compared(
            rules=MXNET_ROI_ALIGN, example="mxnet.ROIAlign(x, rois, (2, 2), 1.0)"
        )
    },
)
_CONTRIB_ALIGN = System(
    "compat.mxnet.contrib_ROIAlign",
    "compat.mxnet.contrib_ROIAlign_backward",
    options=("spatial_scale", "sampling_ratio", "aligned"),
    scales="up to 1",
    samples="grid",
    names=_NAMES,
    oracle=Oracle(ALIGN, single_scale),
    asked={"operation": "roi_align"},
    goldens={
        "mxnet contrib.ROIAlign": Answer("mxnet", "align"),
        "mxnet contrib.ROIAlign gradient": Answer("mxnet", "align_grad", "gradient"),
    },
    compared={
        "mxnet.contrib_ROIAlign": Compared(
            options={"aligned": False},
            libraries=("mxnet",),
            rules=ROI_ALIGN,
            example="mxnet.contrib_ROIAlign(x, rois, (2, 2), 1.0, 2)",
        )
    },
)


def _with_parts(case: Case) -> dict[str, Any]:
    """Return boxes with offsets of parts, and the numbers of parts, groups and channels."""
    given = boxes.with_offsets_of_parts(case)
    _, _, *parts = given["offsets"].shape
    channels = case.grad.shape[1]
    return {**given, "part_size": parts, "group_size": case.size, "output_dim": channels}


_DEFORMABLE = System(
    "compat.mxnet.contrib_DeformablePSROIPooling",
    "compat.mxnet.contrib_DeformablePSROIPooling_backward",
    offset_gradient="compat.mxnet.contrib_DeformablePSROIPooling_backward_trans",
    options=("spatial_scale", "samples", "gamma"),
    scales="up to 1",
    samples="grid",
    boxes=_with_parts,
    forms=("table",),
    names=names_of(
        mxnet.DEFORMABLE_FORM, trans="offsets", sample_per_part="samples", trans_std="gamma"
    ),
    is_position_sensitive=True,
    oracle=Oracle(CORE["deformable_ps_roi_pool"], of_each_bin),
    stored=("mxnet_deformable",),
    compared={
        "mxnet.contrib_DeformablePSROIPooling": Compared(
            options={"gamma": 0.1},
            boxes=boxes.unmoved(_with_parts),
            is_listed=False,
            is_live=False,
            rules=DEFORMABLE_PS_ROI_POOL,
            example="mxnet.contrib_DeformablePSROIPooling(x_of_groups, rois, offsets, 1.0, "
            "x.shape[1], 2, 2, 0, 2, 0.1)",
        )
    },
)
SYSTEMS = {
    "mxnet.ROIPooling": _POOLING,
    "mxnet.ROIAlign": _ALIGN,
    "mxnet.contrib_ROIAlign": _CONTRIB_ALIGN,
    "mxnet.contrib_ROIAlign position_sensitive": _CONTRIB_ALIGN.only_called(
        fixed={"position_sensitive": True},
        is_position_sensitive=True,
        stored=("mxnet_ps",),
        oracle=Oracle(CORE["ps_roi_align"], single_scale),
        goldens={
            "mxnet position_sensitive": Answer("mxnet", "ps", features="ps_features"),
            "mxnet position_sensitive gradient": Answer(
                "mxnet", "ps_grad", "gradient", features="ps_features", grad="ps_grad"
            ),
        },
    ),
    "mxnet.contrib_DeformablePSROIPooling": _DEFORMABLE,
    "mxnet.contrib_PSROIPooling": System(
        "compat.mxnet.contrib_PSROIPooling",
        "compat.mxnet.contrib_PSROIPooling_backward",
        stored=("mxnet_ps",),
        options=("spatial_scale", "group_size"),
        scales="up to 1",
        boxes=lambda case: {"rois": case.rois, "output_dim": case.grad.shape[1]},
        names=_NAMES,
        is_position_sensitive=True,
        oracle=Oracle(CORE["ps_roi_pool"], single_scale),
        compared={
            "mxnet.contrib_PSROIPooling": Compared(
                is_listed=False,
                rules=PS_ROI_POOL,
                example="mxnet.contrib_PSROIPooling(x_of_groups, rois, 1.0, x.shape[1], 2)",
            )
        },
    ),
}
