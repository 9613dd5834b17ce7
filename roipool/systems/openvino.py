"""OpenVINO's systems of upright boxes: see `roipool.compat.openvino`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roipool.compat import openvino
from roipool.reference import DEFORMABLE_PS_ROI_POOL, OPENVINO_ROI_POOL, PS_ROI_POOL, ROI_ALIGN
from roipool.systems import boxes, core, pyramids
from roipool.systems.case import Case
from roipool.systems.oracles import ALIGN, CROP, POOL, of_each_bin, single_scale, without_samples
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.systems.stored import Answer, Results, largest_feature

_LIBRARY = ("openvino",)
_GOLDENS = "openvino_upright"


# ---- What the oracle is asked


def _as_core(case: Case) -> Case:
    """Return the case of `roipool.roi_align`: boxes that are aligned or not."""
    case = single_scale(case)
    mode = case.options["aligned_mode"]
    rois = case.rois
    if mode == "half_pixel":
        rois = rois.astype(case.real)
        rois[:, 1:] += 0.5
    return replace(case, rois=rois, options=case.options | {"aligned": mode != "asymmetric"})


def _from_zero(case: Case, results: Results) -> Results:
    return results | {"pooled": np.maximum(results["pooled"], 0)}


_IN_ORDER = {"order": "openvino"}
_MEAN_ORACLE = Oracle(
    ALIGN._replace(fixed={**ALIGN.fixed, **_IN_ORDER}),
    _as_core,
    lambda case, results: without_samples(_as_core(case), results),
)
_MAXIMUM = core.SYSTEMS["roi_align max"]
_MAXIMUM_ORACLE = Oracle(
    _MAXIMUM._replace(backward="", fixed={**_MAXIMUM.fixed, **_IN_ORDER}), _as_core, _from_zero
)
_CELLS_ORACLE = Oracle(
    POOL._replace(backward="", fixed={**POOL.fixed, "rules": OPENVINO_ROI_POOL}), single_scale
)


def _listed_fractions(case: Case) -> dict[str, Any]:
    """Return batch indices with boxes x1, y1, x2, y2 that are fractions of the map."""
    parts = boxes.fractions(case)
    return {"rois": np.column_stack([case.rois[:, 0], parts["boxes"][:, [1, 0, 3, 2]]])}


def _as_one_part(case: Case) -> Case:
    """Return the case of a crop of the one part of a box, whose end is a start and a length."""
    with np.errstate(all="ignore"):
        fractions = boxes.fractions(case)["boxes"].astype(case.real)
        fractions[:, 2:] = fractions[:, :2] + (fractions[:, 2:] - fractions[:, :2])
    return replace(case, options=case.options | {"boxes": fractions})


def _strides(case: Case) -> list[int]:
    """Return the pixels per cell of each map, each twice the previous."""
    scales = pyramids.scales_of(case)
    return [max(1, round(1 / scales[0])) * 2**level for level in range(len(scales))]


def _with_strides(case: Case) -> dict[str, Any]:
    return {**boxes.with_indices(case), "pyramid_scales": _strides(case)}


def _in_cells_of_levels(case: Case) -> Case:
    """Return the case of `multilevel_roi_align` with boxes in cells, which hold any shift."""
    strides, real = np.array(_strides(case)), case.real
    rois = case.rois.astype(real)
    with np.errstate(all="ignore"):
        x1, y1, x2, y2 = rois[:, 1:].T
        area = (x2 - x1) * (y2 - y1)
        exact = np.floor(np.log2(np.sqrt(area) / real(224) + real(1e-6)) + real(2))
        has_level = (area > 0) & ~np.isnan(exact)
        levels = np.clip(np.nan_to_num(exact), 0, len(strides) - 1).astype(np.int64)
        scales = (real(1) / strides.astype(real))[levels]
        rois[:, 1:] = rois[:, 1:] * scales[:, None] - real(0.5 * case.options["aligned"])
    options = {"spatial_scales": [1.0] * len(strides), "aligned": False}
    options |= {"levels": np.where(has_level, levels, -1)}
    return replace(case, rois=rois, options=case.options | options)


# ---- The rows


def _compared(aligned_mode: str) -> Compared:
    aligned = aligned_mode != "asymmetric"
    return Compared(
        options={"aligned_mode": aligned_mode},
        is_listed=False,
        libraries=_LIBRARY,
        asked={"aligned": aligned},
        rules=ROI_ALIGN,
        example=f"openvino.ROIAlign(x, xyxy, [0], 2, 2, 2, 1.0, 'avg', '{aligned_mode}')",
    )


_MEAN = System(
    "compat.openvino.ROIAlign",
    "compat.openvino.ROIAlign_backward",
    options=("spatial_scale", "sampling_ratio", "aligned_mode"),
    fixed={"mode": "avg"},
    samples="grid",
    boxes=boxes.with_indices,
    names=names_of(openvino.ALIGN_FORM),
    oracle=_MEAN_ORACLE,
    asked={"operation": "roi_align"},
    goldens={
        # Some answers are NaN.
        "openvino ROIAlign avg": Answer(_GOLDENS, "align_avg", terms=largest_feature),
    },
    compared={
        "openvino.ROIAlign[asymmetric]": _compared("asymmetric"),
        "openvino.ROIAlign[half_pixel_for_nn]": _compared("half_pixel_for_nn"),
    },
)
_MAX = _MEAN._replace(
    backward="",
    fixed={"mode": "max"},
    bin_value="sample",
    oracle=_MAXIMUM_ORACLE,
    asked={},
    goldens={
        "openvino ROIAlign max": Answer(_GOLDENS, "align_max"),
    },
    gradient={"backward": "compat.openvino.ROIAlign_backward"},
    compared={},
)
_POOL = System(
    "compat.openvino.ROIPooling",
    options=("spatial_scale",),
    fixed={"method": "max"},
    names=names_of(openvino.POOL_FORM),
    oracle=_CELLS_ORACLE,
    asked={"operation": "roi_pool"},
    goldens={"openvino ROIPooling": Answer(_GOLDENS, "pool_max", exact=True)},
    gradient={"backward": "compat.openvino.ROIPooling_backward"},
    compared={
        "openvino.ROIPooling": Compared(
            is_listed=False,
            libraries=_LIBRARY,
            rules=OPENVINO_ROI_POOL,
            example="openvino.ROIPooling(x, rois, (2, 2), 1.0)",
        )
    },
)
_CROP = _POOL._replace(
    backward="compat.openvino.ROIPooling_backward",
    fixed={"method": "bilinear"},
    samples="one",
    boxes=_listed_fractions,
    oracle=Oracle(core.SYSTEMS["crop_and_resize"]),
    asked={},
    goldens={
        "openvino ROIPooling bilinear": Answer(
            _GOLDENS, "pool_bilinear", options=lambda golden: {"rois": golden.fractions}
        )
    },
    gradient={},
    compared={},
)
_PS_RULES = replace(PS_ROI_POOL, extra="rounded pixel")
_PS_POOL = System(
    "compat.openvino.PSROIPooling",
    "compat.openvino.PSROIPooling_backward",
    stored=("openvino_ps",),
    options=("spatial_scale",),
    boxes=lambda case: {"rois": case.rois, "output_dim": case.grad.shape[1]},
    names=names_of(openvino.PS_FORM),
    is_position_sensitive=True,
    oracle=Oracle(core.SYSTEMS["ps_roi_pool"]._replace(fixed={"rules": _PS_RULES}), single_scale),
    compared={
        "openvino.PSROIPooling": Compared(
            is_listed=False,
            is_live=False,
            rules=_PS_RULES,
            example="openvino.PSROIPooling(x_of_groups, rois, x.shape[1], 2, 1.0)",
        )
    },
)
# Boxes have one part here; those of OpenVINO's answers have others.
_PS_CROP = _PS_POOL.only_called(
    options=(),
    fixed={"mode": "bilinear", "spatial_scale": 1.0},
    samples="one",
    boxes=lambda case: {**_listed_fractions(case), "output_dim": case.grad.shape[1]},
    is_position_sensitive=False,
    oracle=Oracle(CROP, _as_one_part),
)


def _with_parts(case: Case) -> dict[str, Any]:
    """Return boxes with offsets of parts, and the numbers of parts, samples and channels."""
    given = boxes.with_offsets_of_parts(case)
    _, _, *parts = given["offsets"].shape
    samples = np.broadcast_to(case.options["samples"], 2).tolist()
    more = dict(zip(("spatial_bins_y", "spatial_bins_x"), samples, strict=True))
    return {**given, **more, "part_size": parts, "output_dim": case.grad.shape[1]}


_DEFORMABLE = System(
    "compat.openvino.DeformablePSROIPooling",
    "compat.openvino.DeformablePSROIPooling_backward",
    options=("spatial_scale", "samples", "gamma"),
    pairs=True,
    samples="grid",
    boxes=_with_parts,
    forms=("table",),
    names=names_of(openvino.DEFORMABLE_FORM, trans_std="gamma"),
    is_position_sensitive=True,
    oracle=Oracle(core.SYSTEMS["deformable_ps_roi_pool"], of_each_bin),
    stored=("openvino_deformable",),
    compared={
        "openvino.DeformablePSROIPooling": Compared(
            options={"gamma": 0.1},
            boxes=boxes.unmoved(_with_parts),
            is_listed=False,
            is_live=False,
            rules=DEFORMABLE_PS_ROI_POOL,
            example="openvino.DeformablePSROIPooling(x_of_groups, rois, offsets, "
            "output_dim=x.shape[1], spatial_scale=1.0, group_size=2, spatial_bins_x=2, "
            "spatial_bins_y=2, trans_std=0.1, part_size=2)",
        )
    },
)
_EXTRACTOR = System(
    "compat.openvino.ExperimentalDetectronROIFeatureExtractor",
    "compat.openvino.ExperimentalDetectronROIFeatureExtractor_backward",
    stored=("openvino_pyramids",),
    options=("spatial_scale", "sampling_ratio", "aligned"),
    scales="powers of 2",
    samples="grid",
    boxes=_with_strides,
    names={"pyramid_layers": "features"},
    pyramid=list,
    is_semantics=False,
    oracle=Oracle(core.LEVELS, _in_cells_of_levels),
)
SYSTEMS = {
    "openvino.DeformablePSROIPooling": _DEFORMABLE,
    "openvino.ExperimentalDetectronROIFeatureExtractor": _EXTRACTOR,
    "openvino.PSROIPooling": _PS_POOL,
    "openvino.PSROIPooling bilinear": _PS_CROP,
    "openvino.ROIAlign": _MEAN,
    "openvino.ROIAlign max": _MAX,
    "openvino.ROIPooling": _POOL,
    "openvino.ROIPooling bilinear": _CROP,
}
