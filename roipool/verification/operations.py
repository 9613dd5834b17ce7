"""The table of operations: an operation is a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool._definitions import TRAITS, Op, Variant
from roipool.verification.trials import VARIANTS

from .case import FORMS, Case

Random: TypeAlias = np.random.Generator


class Operation(NamedTuple):
    """Public functions, by their names in roipool, and how their arguments are drawn.

    Arguments are passed by name: each function gets those of `known_arguments` that it has, after
    `names` has translated its own.

    Attributes
    ----------
    forward, backward, box_gradient : str
        The functions; "" if there is none.
    options : dict
        For each option that is drawn, a function from a random generator to its value.
    fixed : dict
        Options that are always the same.
    returns : tuple of str
        What the forward returns; all but "pooled" is passed to the backward, too.
    samples : str
        What a bin holds: a "grid" of samples, such a grid turned ("points"), whole "cells", its
        "area", or "one" sample.
    bin_value : str
        What a pooled value is: see ``roipool._definitions.Variant``. Of a row that the oracle has
        under another name, the oracle's counts.
    boxes : function
        From a case to the arguments that hold the boxes.
    names : dict
        Names of arguments that are the operation's own.
    dtypes, layouts : tuple of str
        Those that it takes.
    finite : bool
        Whether boxes that are not finite are an error.
    takes_no_rows : bool
        Whether maps may be without rows.
    forms : tuple of str
        Those of `FORMS` in which boxes are drawn; others may be made of the same boxes.
    like : str
        The operation whose oracle is this row's, too.
    without_oracle : tuple of str
        Types of maps in which the oracle's decisions are not this row's.
    pyramid : function, optional
        From a list with something of each map to what the functions take. Then the case's maps are
        divided among several: see `pyramids.py`.
    argmax_is_of_batch : bool
        Whether an argmax counts through all images and channels; results say it in each map.
    """

    forward: str
    backward: str = ""
    box_gradient: str = ""
    options: Mapping[str, Callable[[Random], Any]] = {}
    fixed: Mapping[str, Any] = {}
    returns: tuple[str, ...] = ("pooled",)
    samples: str = "cells"
    bin_value: str = "average"
    boxes: Callable[[Case], dict[str, Any]] = lambda case: {"rois": case.rois}
    names: Mapping[str, str] = {}
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16", "float64")
    layouts: tuple[str, ...] = ("NCHW",)
    finite: bool = False
    takes_no_rows: bool = True
    forms: tuple[str, ...] = FORMS
    like: str = ""
    without_oracle: tuple[str, ...] = ()
    pyramid: Callable[[list[Any]], Any] | None = None
    argmax_is_of_batch: bool = False


def scale(rng: Random) -> float:
    """Draw a spatial scale above 0."""
    usual = (1.0, 1.0, 0.5, 1 / 16, 1 / 3, 0.6, 1 / 32, 2.0, rng.uniform(0.02, 3))
    return float(usual[rng.integers(len(usual))])


def _any_scale(rng: Random) -> float:
    return 0.0 if rng.random() < 0.03 else scale(rng)


def _scale_to_one(rng: Random) -> float:
    return float(rng.choice((1.0, 1.0, 0.5, 1 / 16, 1 / 3, 0.6, rng.uniform(0.02, 1))))


def one_sampling(rng: Random) -> int:
    """Draw a sampling ratio."""
    usual = (0, 0, 1, 1, 2, 3)
    return usual[rng.integers(6)] if rng.random() < 0.6 else int(rng.integers(10))


def sampling(rng: Random) -> int | tuple[int, int]:
    """Draw a sampling ratio for both axes or one for each."""
    return one_sampling(rng) if rng.random() < 0.5 else (one_sampling(rng), one_sampling(rng))


def flag(rng: Random) -> bool:
    """Draw a flag."""
    return bool(rng.integers(2))


def _outside(rng: Random) -> float:
    return float(rng.choice((0.0, 0.5, -3.0, np.nan, np.inf)))


def _angle_unit(rng: Random) -> str:
    return str(rng.choice(("radians", "degrees")))


def _half_pixel(rng: Random) -> str:
    return str(rng.choice(("half_pixel", "output_half_pixel")))


def boxes_in_any_form(case: Case) -> dict[str, Any]:
    """Return boxes as the core takes them."""
    if case.form == "batch indices":
        return {"rois": case.rois[:, 1:], "batch_indices": case.images}
    if case.form == "nested lists":
        return {"rois": case.rois.tolist()}
    if case.form == "one array per image":
        return {"rois": [case.rois[case.images == n, 1:] for n in range(len(case.maps))]}
    return {"rois": case.rois}


def _boxes_with_indices(case: Case) -> dict[str, Any]:
    return {"rois": case.rois[:, 1:], "batch_indices": case.images}


def _boxes_from_y(case: Case) -> dict[str, Any]:
    return {"rois": case.rois[:, [2, 1, 4, 3]], "batch_indices": case.images}


def _fractions(case: Case) -> dict[str, Any]:
    """Return boxes as crops take them: fractions of the map, from its first cell to its last."""
    last_y, last_x = (max(size - 1, 1) for size in case.maps.shape[2:])
    boxes = case.rois[:, [2, 1, 4, 3]] / np.array([last_y, last_x, last_y, last_x])
    return {"boxes": boxes, "box_indices": case.images}


def rotated_boxes(case: Case) -> dict[str, Any]:
    """Return boxes with centres and sides, turned by eighths or by any angle, in any form."""
    x1, y1, x2, y2 = case.rois[:, 1:].T
    unit = 180 / np.pi if case.options["angle_unit"] == "degrees" else 1.0
    with np.errstate(all="ignore"):
        by_place = 7.3 * x1 + 1.9 * y2
        angle = np.where(by_place % 3 < 1, np.round(by_place) % 8 * (np.pi / 4), by_place % 9)
        columns = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, angle * unit)
    rois = np.column_stack([case.rois[:, 0], *columns])
    return boxes_in_any_form(replace(case, rois=rois))


_CROP: dict[str, Any] = {
    "options": {"extrapolation_value": _outside},
    "samples": "one",
    "boxes": _fractions,
}
_SCALED = {"spatial_scale": _any_scale}
_RATIO = {"spatial_scale": _any_scale, "sampling_ratio": one_sampling}
_ARGMAX = {"return_argmax": True}


def takes_pairs(operation: Operation) -> bool:
    """Return whether sampling ratios may differ between rows and columns."""
    return operation.options.get("sampling_ratio") is sampling


def takes_scale_zero(operation: Operation) -> bool:
    """Return whether a spatial scale may be 0."""
    return operation.options.get("spatial_scale", _any_scale) is _any_scale


# ---- The core's operations, from the table of operations

_DRAWN = {
    "spatial_scale": _any_scale,
    "sampling_ratio": sampling,
    "aligned": flag,
    "clockwise": flag,
    "angle_unit": _angle_unit,
    "extrapolation_value": _outside,
}
_SAMPLES = {"grid": "grid", "steps": "grid", "cells": "cells", "crop": "one", "points": "points"}
_BOXES = {("rois", 4): boxes_in_any_form, ("rois", 5): rotated_boxes, ("boxes", 4): _fractions}
_EXCEPTIONS: dict[str, dict[str, Any]] = {
    # float64 sees the last bit of sine and cosine
    "roi_align_rotated": {"dtypes": ("float32", "float16", "bfloat16")},
}


def _of_core(op: Op, variant: Variant) -> Operation:
    names = [*op.placing, *filter(None, (op.filling,))]
    return Operation(
        op.forward, op.backward, (variant.by_boxes and op.backward_boxes) or "",
        options={name: _DRAWN[name] for name in names},
        fixed={**variant.options, **(_ARGMAX if variant.has_argmax else {})},
        returns=("pooled", "argmax") if variant.has_argmax else ("pooled",),
        samples="area" if variant.is_integral else _SAMPLES[TRAITS[variant.definition].kind],
        bin_value=variant.bin_value,
        boxes=_BOXES[op.boxes, op.columns], layouts=("NCHW", "NHWC"),
    )._replace(**_EXCEPTIONS.get(op.forward, {}))  # fmt: skip


def _core() -> dict[str, Operation]:
    """Return a row for each variant."""
    return {name: _of_core(op, variant) for name, (op, variant) in VARIANTS.items()}


# ---- Those of compat

_CAFFE = {"bottom": "features", "top_diff": "grad_output", "bottom_shape": "input_shape"}
MXNET = {
    "data": "features",
    "out_grad": "grad_output",
    "data_shape": "input_shape",
    "pooled_size": "output_size",
    "sample_ratio": "sampling_ratio",
}
_TORCHVISION = {"input": "features", "boxes": "rois"}

OPERATIONS = {
    **_core(),
    "caffe.roi_pooling": Operation(
        "compat.caffe.roi_pooling", "compat.caffe.roi_pooling_backward", options=_SCALED,
        fixed={"exact_gradient": True}, returns=("pooled", "argmax"), names=_CAFFE,
    ),
    "caffe.roi_align": Operation(
        "compat.caffe.roi_align", options=_SCALED, returns=("pooled", "argmax_x", "argmax_y"),
        names=_CAFFE,
    ),
    "chainer.roi_average_pooling_2d": Operation(
        "compat.chainer.roi_average_pooling_2d", "compat.chainer.roi_average_pooling_2d_backward",
        options={"spatial_scale": scale}, boxes=_boxes_from_y, finite=True,
        names={"x": "features", "gy": "grad_output", "x_shape": "input_shape",
               "outsize": "output_size", "roi_indices": "batch_indices"},
    ),
    "maskrcnn_benchmark.roi_align": Operation(
        "compat.maskrcnn_benchmark.roi_align", "compat.maskrcnn_benchmark.roi_align_backward",
        options=_RATIO, samples="grid", names={"input": "features", "roi": "rois"},
    ),
    "mmcv.roi_align": Operation(
        "compat.mmcv.roi_align", "compat.mmcv.roi_align_backward", samples="grid",
        options={**_RATIO, "aligned": flag}, fixed={"argmax_y": None, "argmax_x": None},
        names={"input": "features"},
    ),
    "mmcv.roi_align max": Operation(
        "compat.mmcv.roi_align", options={**_RATIO, "aligned": flag}, samples="grid",
        fixed={"pool_mode": "max", **_ARGMAX}, returns=("pooled", "argmax_y", "argmax_x"),
        names={"input": "features"},
    ),
    "mmcv.roi_pool": Operation(
        "compat.mmcv.roi_pool", options=_SCALED, fixed=_ARGMAX, returns=("pooled", "argmax"),
        names={"input": "features"},
    ),
    "mxnet.ROIPooling": Operation(
        "compat.mxnet.ROIPooling", options={"spatial_scale": _scale_to_one}, names=MXNET
    ),
    "mxnet.ROIAlign": Operation(
        "compat.mxnet.ROIAlign", options={"spatial_scale": _scale_to_one}, fixed=_ARGMAX,
        returns=("pooled", "argmax_x", "argmax_y"), names=MXNET,
    ),
    "mxnet.contrib_ROIAlign": Operation(
        "compat.mxnet.contrib_ROIAlign", "compat.mxnet.contrib_ROIAlign_backward", samples="grid",
        options={**_RATIO, "spatial_scale": _scale_to_one, "aligned": flag}, names=MXNET,
    ),
    "onnx.RoiAlign": Operation(
        "compat.onnx.RoiAlign", "compat.onnx.RoiAlign_backward", samples="grid", finite=True,
        options={**_RATIO, "coordinate_transformation_mode": _half_pixel},
        boxes=_boxes_with_indices, names={"X": "features"},
    ),
    "onnx.RoiAlign max": Operation(
        "compat.onnx.RoiAlign", fixed={"mode": "max"}, samples="grid", finite=True,
        options={**_RATIO, "coordinate_transformation_mode": _half_pixel},
        boxes=_boxes_with_indices, names={"X": "features"},
    ),
    "onnx.MaxRoiPool": Operation(
        "compat.onnx.MaxRoiPool", options={"spatial_scale": scale},
        names={"X": "features", "pooled_shape": "output_size"},
    ),
    "roialign_pytorch.crop_and_resize": Operation(
        "compat.roialign_pytorch.crop_and_resize",
        "compat.roialign_pytorch.crop_and_resize_backward", **_CROP,
        names={"image": "features", "box_ind": "box_indices", "grad_outputs": "grad_output",
               "image_size": "input_shape"},
    ),
    "tensorflow.crop_and_resize": Operation(
        "compat.tensorflow.crop_and_resize", "compat.tensorflow.crop_and_resize_backward",
        "compat.tensorflow.crop_and_resize_backward_boxes", layouts=("NHWC",), **_CROP,
        dtypes=("float32",), finite=True,
        names={"image": "features", "grads": "grad_output", "image_size": "input_shape"},
    ),
    "torchvision.roi_align": Operation(
        "compat.torchvision.roi_align", "compat.torchvision.roi_align_backward", samples="grid",
        options={**_RATIO, "aligned": flag}, names=_TORCHVISION,
    ),
    "torchvision.roi_pool": Operation(
        "compat.torchvision.roi_pool", "compat.torchvision.roi_pool_backward", options=_SCALED,
        fixed=_ARGMAX, returns=("pooled", "argmax"), names=_TORCHVISION,
    ),
}  # fmt: skip
