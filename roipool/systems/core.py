"""roipool's own operations, derived from the table `OPS`, multilevel_roi_align and roi_align_3d."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roipool._boxes import CORNERS, CROPS, DEFORMED, DEFORMED_BY_CLASS, ROTATED
from roipool._definitions import OPS, TRAITS, VOLUME_OPS, Op, Variant
from roipool._dtypes import INTEGERS
from roipool.reference import (
    CROP_AND_RESIZE,
    DEFORMABLE_PS_ROI_POOL,
    PRECISE_ROI_POOL,
    PS_ROI_POOL,
    ROI_ALIGN,
    ROI_AVERAGE_POOL,
    ROI_POOL,
)
from roipool.systems import boxes, pyramids, volumes
from roipool.systems.case import Case
from roipool.systems.row import DTYPES, Compared, Oracle, System

# All variants of all operations by name; the first variant has the operation's name.
VARIANTS: dict[str, tuple[Op, Variant]] = {
    f"{op.forward} {key}" if number else op.forward: (op, variant)
    for op in OPS.values()
    for number, (key, variant) in enumerate(op.variants.items())
}
# All on one map, or on one volume.
OPERATIONS = (*VARIANTS, *VOLUME_OPS)
_SAMPLES = {
    **dict.fromkeys(("grid", "steps", "moved"), "grid"),
    "cells": "cells",
    "points": "points",
    "crop": "one",
    "filter": "filter",
}
_BOXES = {
    CORNERS: boxes.in_any_form,
    DEFORMED: boxes.with_offsets,
    DEFORMED_BY_CLASS: boxes.with_offsets_of_parts,
    ROTATED: boxes.turned,
    CROPS: boxes.fractions,
}
_ASKED = {
    "roi_pool": {"operation": "roi_pool"},
    "roi_align": {"operation": "roi_align"},
    "roi_align max": {"operation": "roi_align", "mode": "max"},
    "crop_and_resize": {"operation": "crop_and_resize"},
}
# Operations with one scale: boxes of maps that are turned, or rounded before they are scaled; crops
# have none.
ONE_SCALE = {"roi_align_rotated", "ps_roi_pool", "deformable_ps_roi_pool", "crop_and_resize"}
# In float64 the last bit of a sine or cosine may differ from the oracle's.
_EXCEPTIONS: dict[str, dict[str, Any]] = {
    "roi_align_rotated": {"without_oracle": ("float64",)},
}
_ALIGNED = {"aligned": True}

# In the order of `roipool compare`, which lists crops as `tensorflow.crop_and_resize`.
_COMPARED = {
    "roi_pool": Compared(rules=ROI_POOL, example="roipool.roi_pool(x, rois, 2)"),
    "roi_average_pool": Compared(
        rules=ROI_AVERAGE_POOL, example="roipool.roi_average_pool(x, rois, 2)"
    ),
    "precise_roi_pool": Compared(
        rules=PRECISE_ROI_POOL, example="roipool.precise_roi_pool(x, rois, 2)"
    ),
    "roi_align": Compared(
        options=_ALIGNED,
        rules=ROI_ALIGN,
        example="roipool.roi_align(x, rois, 2, sampling_ratio=2)",
    ),
    "roi_align max": Compared(
        options=_ALIGNED,
        rules=replace(ROI_ALIGN, reduce="max"),
        example="roipool.roi_align(x, rois, 2, sampling_ratio=2, mode='max')",
    ),
    "roi_align_rotated": Compared(
        options={**_ALIGNED, "clockwise": False, "angle_unit": "radians"},
        boxes=boxes.with_angle,
        box_gradient=boxes.of_angle,
        rotated=True,
        rules=ROI_ALIGN,
        example="roipool.roi_align_rotated(x, rotated, 2, sampling_ratio=2)",
    ),
    "ps_roi_pool": Compared(
        is_listed=False,
        rules=PS_ROI_POOL,
        example="roipool.ps_roi_pool(x_of_groups, rois, 2)",
    ),
    "ps_roi_align": Compared(
        options=_ALIGNED,
        is_listed=False,
        rules=ROI_ALIGN,
        example="roipool.ps_roi_align(x_of_groups, rois, 2, sampling_ratio=2)",
    ),
    "deform_roi_pool": Compared(
        boxes=boxes.unmoved(boxes.with_offsets),
        is_listed=False,
        is_live=False,
        asked=_ALIGNED,
        rules=ROI_ALIGN,
        example="roipool.deform_roi_pool(x, rois, offsets, 2, sampling_ratio=2)",
    ),
    "deformable_ps_roi_pool": Compared(
        options={"gamma": 0.1},
        boxes=boxes.unmoved(boxes.with_offsets_of_parts),
        is_listed=False,
        is_live=False,
        rules=DEFORMABLE_PS_ROI_POOL,
        example="roipool.deformable_ps_roi_pool(x_of_groups, rois, offsets, 2, samples=2)",
    ),
    "crop_and_resize": Compared(
        box_gradient=boxes.of_fractions,
        is_listed=False,
        rules=replace(CROP_AND_RESIZE, spread="exact corners"),
        example="roipool.crop_and_resize(x, fractions, [0], 2)",
    ),
    "crop_and_resize nearest": Compared(is_listed=False),
    "crop_and_resize antialias": Compared(is_listed=False),
}
_COMPARED_VOLUME = Compared(options=_ALIGNED, is_live=False, rules=ROI_ALIGN)


def shown_name(row: str) -> str:
    """Return a row's name in users' notation: ``mmcv.roi_align[max]`` for "mmcv.roi_align max"."""
    function, _, mode = row.partition(" ")
    name = function if "." in function else f"roipool.{function}"
    return f"{name}[{mode}]" if mode else name


def _scale_ratio(op: Op) -> tuple[str, ...]:
    """Return the option that stands for a scale of rows, where it may differ from that of columns.

    In a call, `Case.scale` is then both.
    """
    return () if op.forward in ONE_SCALE else ("scale_ratio",)


def _row(name: str, op: Op, variant: Variant) -> System:
    return System(
        op.forward,
        op.backward,
        (variant.by_boxes and op.backward_boxes) or "",
        op.backward_offsets or "",
        options=(*op.placing, *_scale_ratio(op), *filter(None, (op.filling,))),
        pairs=bool({"sampling_ratio", "samples"} & {*op.placing}),
        fixed={**variant.options, **({"return_argmax": True} if variant.has_argmax else {})},
        returns=("pooled", "argmax") if variant.has_argmax else ("pooled",),
        samples="area" if variant.is_integral else _SAMPLES[TRAITS[variant.definition].kind],
        bin_value=variant.bin_value,
        boxes=_BOXES[op.form],
        dtypes=(*DTYPES, *(name for name in op.dtypes if name not in DTYPES)),
        layouts=("NCHW", "NHWC"),
        is_position_sensitive=op.is_position_sensitive,
        asked=_ASKED.get(name, {}),
        compared={shown_name(name): _COMPARED[name]} if name in _COMPARED else {},
    )._replace(**_EXCEPTIONS.get(op.forward, {}))


# ---- Several maps


def _on_levels(case: Case) -> dict[str, Any]:
    """Return boxes with levels or, if the case assigns levels by size, without."""
    levels = None if case.options["by_size"] else pyramids.given_levels(case)
    scales = pyramids.scales_of(case)
    return {**boxes.in_any_form(case), "levels": levels, "spatial_scales": scales}


_PYRAMID = System(
    "multilevel_roi_align",
    "multilevel_roi_align_backward",
    "multilevel_roi_align_backward_rois",
    options=("spatial_scale", "scale_ratio", "sampling_ratio", "aligned", "by_size"),
    scales="above 0",
    pairs=True,
    samples="grid",
    boxes=_on_levels,
    layouts=("NCHW", "NHWC"),
    pyramid=list,
    is_semantics=False,
)
LEVELS = _PYRAMID._replace(boxes=lambda case: {"rois": case.rois})  # of the oracle

_VOLUME = System(
    "roi_align_3d",
    "roi_align_3d_backward",
    "roi_align_3d_backward_rois",
    options=("spatial_scale", "sampling_ratio", "aligned"),
    pairs=True,
    samples="grid",
    boxes=lambda case: boxes.in_any_form(volumes.with_depth(case)),
    layouts=("NCHW", "NHWC"),
    is_volume=True,
    is_semantics=False,
)

# The oracle of other systems for volumes, whose boxes are not aligned, and their comparison.
UNALIGNED_VOLUME = Compared(is_live=False, rules=ROI_ALIGN)
VOLUMES = _VOLUME._replace(
    box_gradient="",
    options=("spatial_scale", "sampling_ratio"),
    fixed={"aligned": False},
    boxes=lambda case: {"rois": volumes.with_depth(case).rois},
)

SYSTEMS = {
    **{name: _row(name, *VARIANTS[name]) for name in {**_COMPARED, **VARIANTS}},
    "multilevel_roi_align": _PYRAMID._replace(oracle=Oracle(LEVELS, pyramids.with_levels_by_area)),
    "roi_align_3d": _VOLUME._replace(
        dtypes=(*DTYPES, *INTEGERS), compared={shown_name("roi_align_3d"): _COMPARED_VOLUME}
    ),
}
