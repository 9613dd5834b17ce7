"""Everything that is drawn: the operations, and what else is public.

What is here and not in `OPERATIONS` is no semantics of its own, to which somebody else's function
could conform: the classes of `compat`, gradients of maxima that the oracle does not have, and
operations on several maps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import pyramids
from .case import Case
from .operations import (
    MXNET,
    OPERATIONS,
    Operation,
    Random,
    boxes_in_any_form,
    flag,
    one_sampling,
    rotated_boxes,
    sampling,
    scale,
)  # fmt: skip

PER_IMAGE = ("one array per image",)


def _like(name: str, **changes: Any) -> Operation:
    """Return a row with the oracle of another."""
    return OPERATIONS[name]._replace(like=name, **changes)


def _with_gradient(name: str, backward: str, **changes: Any) -> Operation:
    """Return a row with a gradient, of which there may be the original's own and the exact one."""
    has_choice = not name.startswith(("onnx", "mxnet.ROIPooling"))
    options = {**OPERATIONS[name].options, **({"exact_gradient": flag} if has_choice else {})}
    return _like(name, backward=f"compat.{backward}", options=options, **changes)


_GRADIENTS = {
    "caffe.roi_pooling gradient": _with_gradient(
        "caffe.roi_pooling", "caffe.roi_pooling_backward", fixed={}
    ),
    "caffe.roi_align gradient": _with_gradient("caffe.roi_align", "caffe.roi_align_backward"),
    "mmcv.roi_align max gradient": _with_gradient("mmcv.roi_align max", "mmcv.roi_align_backward"),
    "mmcv.roi_pool gradient": _with_gradient("mmcv.roi_pool", "mmcv.roi_pool_backward"),
    "mxnet.ROIPooling gradient": _with_gradient(
        "mxnet.ROIPooling", "mxnet.ROIPooling_backward", returns=("pooled", "argmax"),
        fixed={"return_argmax": True}, argmax_is_of_batch=True,
    ),
    "mxnet.ROIAlign gradient": _with_gradient(
        "mxnet.ROIAlign", "mxnet.ROIAlign_backward",
        names={**MXNET, "maxidx_x": "argmax_x", "maxidx_y": "argmax_y"},
    ),
    "onnx.RoiAlign max gradient": _with_gradient("onnx.RoiAlign max", "onnx.RoiAlign_backward"),
    "onnx.MaxRoiPool gradient": _with_gradient("onnx.MaxRoiPool", "onnx.MaxRoiPool_backward"),
}  # fmt: skip


# ---- Classes: a row's functions are their methods, called with the constructor's arguments, too


def _class(name: str, like: str, backward: bool = True, **changes: Any) -> Operation:
    return _like(
        like, forward=f"compat.{name}.forward",
        backward=f"compat.{name}.backward" if backward else "", **changes,
    )  # fmt: skip


def _cells(case: Case) -> dict[str, Any]:
    return {"boxes": case.rois[:, 1:], "box_ind": case.images}


_INPUT = {"input": "features"}
_CLASSES = {
    "detectron2.ROIAlign": _class("detectron2.ROIAlign", "torchvision.roi_align", names=_INPUT),
    "maskrcnn_benchmark.ROIAlign": _class(
        "maskrcnn_benchmark.ROIAlign", "maskrcnn_benchmark.roi_align", names=_INPUT
    ),
    "mmcv.RoIAlign": _class("mmcv.RoIAlign", "mmcv.roi_align", backward=False, fixed={}),
    "mmcv.RoIAlign max": _class(
        "mmcv.RoIAlign", "mmcv.roi_align max", backward=False, fixed={"pool_mode": "max"},
        returns=("pooled",),
    ),
    "mmcv.RoIAlign torchvision": _class(
        "mmcv.RoIAlign", "torchvision.roi_align", backward=False, fixed={"use_torchvision": True},
        names=_INPUT,
    ),
    "mmcv.RoIPool": _class(
        "mmcv.RoIPool", "mmcv.roi_pool", backward=False, fixed={}, returns=("pooled",)
    ),
    "roialign_pytorch.CropAndResize": _class(
        "roialign_pytorch.CropAndResize", "roialign_pytorch.crop_and_resize"
    ),
    "roialign_pytorch.RoIAlign": _class(
        "roialign_pytorch.RoIAlign", "roialign_pytorch.crop_and_resize",
        options={**OPERATIONS["roialign_pytorch.crop_and_resize"].options,
                 "transform_fpcoor": flag},
        boxes=_cells,
        names={"featuremap": "features", "grad_outputs": "grad_output",
               "featuremap_size": "input_shape"},
    ),
    "torchvision.RoIAlign": _class("torchvision.RoIAlign", "torchvision.roi_align", names=_INPUT),
    "torchvision.RoIPool": _class(
        "torchvision.RoIPool", "torchvision.roi_pool", backward=False, fixed={}, names=_INPUT,
        returns=("pooled",),
    ),
}  # fmt: skip


# ---- Pyramids


def _power_of_two(rng: Random) -> float:
    return float(2.0 ** rng.integers(-5, 2))


def _canonical_size(rng: Random) -> float:
    return float(rng.choice((224, 224, 50, 7.5)))


def _canonical_level(rng: Random) -> int:
    return int(rng.integers(-1, 6))


def _pooler_type(rng: Random) -> str:
    return str(rng.choice(("ROIAlign", "ROIAlignV2")))


def _degrees(rng: Random) -> str:
    return "degrees"


def _on_levels(case: Case) -> dict[str, Any]:
    """Return boxes with levels, or without: then these go by the boxes' sizes."""
    levels = None if case.options["by_size"] else pyramids.given_levels(case)
    scales = pyramids.scales_of(case)
    return {**boxes_in_any_form(case), "levels": levels, "spatial_scales": scales}


def _of_pictures(case: Case) -> dict[str, Any]:
    pictures = [pyramids.picture_of(case)] * max(1, len(case.maps))
    return {"boxes": pyramids.tables_of_images(case), "image_shapes": pictures}


def _box_lists(case: Case) -> dict[str, Any]:
    return {"box_lists": pyramids.tables_of_images(case), "scales": pyramids.scales_of(case)}


def _rotated_box_lists(case: Case) -> dict[str, Any]:
    tables = rotated_boxes(replace(case, form="one array per image"))["rois"]
    return {"box_lists": tables, "scales": pyramids.scales_of(case)}


_POOLER = Operation(
    "compat.detectron2.ROIPooler.forward", "compat.detectron2.ROIPooler.backward",
    options={
        "spatial_scale": _power_of_two, "sampling_ratio": one_sampling,
        "canonical_box_size": _canonical_size, "canonical_level": _canonical_level,
        "pooler_type": _pooler_type,
    },
    samples="grid", boxes=_box_lists, names={"x": "features"}, pyramid=list, forms=PER_IMAGE,
)  # fmt: skip
_PYRAMIDS = {
    "multilevel_roi_align": Operation(
        "multilevel_roi_align", "multilevel_roi_align_backward",
        "multilevel_roi_align_backward_rois",
        options={"spatial_scale": scale, "sampling_ratio": sampling, "aligned": flag,
                 "by_size": flag},
        samples="grid", boxes=_on_levels, layouts=("NCHW", "NHWC"), pyramid=list,
    ),
    "torchvision.MultiScaleRoIAlign": Operation(
        "compat.torchvision.MultiScaleRoIAlign.forward",
        "compat.torchvision.MultiScaleRoIAlign.backward",
        options={
            "spatial_scale": _power_of_two, "sampling_ratio": one_sampling,
            "canonical_scale": _canonical_size, "canonical_level": _canonical_level,
        },
        fixed={"featmap_names": ["0", "1", "2"]}, samples="grid", boxes=_of_pictures,
        names={"x": "features"}, pyramid=pyramids.by_name, forms=PER_IMAGE, takes_no_rows=False,
    ),
    "detectron2.ROIPooler": _POOLER,
    "detectron2.ROIPooler rotated": _POOLER._replace(
        options={
            **{name: one for name, one in _POOLER.options.items() if name != "pooler_type"},
            "angle_unit": _degrees,
        },
        samples="points",
        fixed={"pooler_type": "ROIAlignRotated"}, boxes=_rotated_box_lists,
        without_oracle=_POOLER.dtypes,
    ),
}  # fmt: skip

_NEAREST = {
    "tensorflow.crop_and_resize nearest": OPERATIONS["tensorflow.crop_and_resize"]._replace(
        box_gradient="", fixed={"method": "nearest"}
    )
}
# The last bit of a sine or cosine, which float64 sees, is not the oracle's.
_ROTATED = OPERATIONS["roi_align_rotated"]._replace(
    dtypes=_POOLER.dtypes, without_oracle=("float64",)
)
ROWS = {
    **OPERATIONS, "roi_align_rotated": _ROTATED, **_GRADIENTS, **_NEAREST, **_CLASSES, **_PYRAMIDS,
}  # fmt: skip


def drawn_functions() -> set[str]:
    """Return the public functions and methods that are drawn."""
    every = [(row.forward, row.backward, row.box_gradient) for row in ROWS.values()]
    return {name for names in every for name in names if name}
