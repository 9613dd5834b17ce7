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
from roipool.verification.case import Case as CoreCase
from roipool.verification.released import Answer, Case

_NAMES = names_of(mxnet.FORM, sample_ratio="sampling_ratio")
_ARGMAX = {"return_argmax": True}


def _pooled(case: Case) -> tuple[Any, Any]:
    pooled = mxnet.ROIPooling(case.features, case.rois, case.size, case.scale, return_argmax=True)
    assert isinstance(pooled, tuple)
    return pooled


def _pooled_gradient(case: Case) -> Any:
    return mxnet.ROIPooling_backward(case.grad, _pooled(case)[1], case.rois, case.features.shape)


def _aligned(case: Case, sensitive: bool) -> Any:
    maps = case.ps_features if sensitive else case.features
    return mxnet.contrib_ROIAlign(
        maps, case.rois, case.size, case.scale, case.sampling, sensitive, case.aligned
    )


def _aligned_gradient(case: Case, sensitive: bool) -> Any:
    shape = (case.ps_features if sensitive else case.features).shape
    gradient = case.ps_grad if sensitive else case.grad
    return mxnet.contrib_ROIAlign_backward(
        gradient, case.rois, shape, case.scale, case.sampling, sensitive, case.aligned
    )


_POOLING = System(
    "compat.mxnet.ROIPooling",
    options=("spatial_scale",),
    scales="up to 1",
    names=_NAMES,
    oracle=MAXIMUM_OF_CELLS._replace(operation=POOL._replace(backward="")),
    asked={"operation": "roi_pool"},
    goldens={
        "mxnet ROIPooling": Answer("mxnet", "pool", lambda c: _pooled(c)[0], True),
        "mxnet ROIPooling gradient": Answer("mxnet", "pool_grad", _pooled_gradient, True),
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
        "mxnet contrib.ROIAlign": Answer("mxnet", "align", lambda c: _aligned(c, False)),
        "mxnet contrib.ROIAlign gradient": Answer(
            "mxnet", "align_grad", lambda c: _aligned_gradient(c, False)
        ),
        "mxnet position_sensitive": Answer("mxnet", "ps", lambda c: _aligned(c, True)),
        "mxnet position_sensitive gradient": Answer(
            "mxnet", "ps_grad", lambda c: _aligned_gradient(c, True)
        ),
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


def _with_parts(case: CoreCase) -> dict[str, Any]:
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
    "mxnet.ROIPooling gradient": _POOLING.only_called(
        backward="compat.mxnet.ROIPooling_backward",
        returns=("pooled", "argmax"),
        fixed=_ARGMAX,
        argmax_is_of_batch=True,
        compared={
            "mxnet.ROIPooling": Compared(
                libraries=("mxnet",),
                rules=ROI_POOL,
                example="mxnet.ROIPooling(x, rois, (2, 2), 1.0)",
            )
        },
    ),
    "mxnet.ROIAlign": _ALIGN,
    "mxnet.ROIAlign gradient": _ALIGN.only_called(
        backward="compat.mxnet.ROIAlign_backward",
        options=("spatial_scale", "exact_gradient"),
        names={**_NAMES, "maxidx_x": "argmax_x", "maxidx_y": "argmax_y"},
    ),
    "mxnet.contrib_ROIAlign": _CONTRIB_ALIGN,
    "mxnet.contrib_ROIAlign position_sensitive": _CONTRIB_ALIGN.only_called(
        fixed={"position_sensitive": True},
        is_position_sensitive=True,
        stored=("mxnet_ps",),
        oracle=Oracle(CORE["ps_roi_align"], single_scale),
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
