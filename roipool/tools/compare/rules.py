"""The rules of each system, apart from one another, so that one of them can be changed.

To say *why* two systems differ, their rules must be exchanged one at a time: what is the value if
only the rounding of the box is the other's? `roipool.tools.compare.evaluation` answers that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from roipool.tools.compare.patterns import system_of

__all__ = ["RULES", "Rules", "rules_of"]


@dataclass(frozen=True)
class Rules:
    """The rules of a system.

    Attributes
    ----------
    rounding : {"none", "half away", "half even"}
        Of a box's ends, in map cells.
    shift : float
        What is subtracted from them: 0.5 where cell 0 covers -0.5 to 0.5.
    extra : {"none", "cell", "pixel"}
        What is added to a box's length: a map cell, or a pixel of the image.
    minimum : bool
        Whether a box is at least one cell long.
    samples : {"grid", "cells", "steps", "ends", "integral"}
        What a bin reads: a grid of interpolated samples; every cell that it touches; samples one
        cell apart from its start; one sample per bin, the first and last at the box's ends; or the
        integral of the interpolated map.
    ratio : int or None
        Samples of a grid per bin and axis, where it is not what the user asks for.
    border : {"hold", "zero", "drop"}
        Samples outside the map: held at it for one cell, and 0 beyond; 0; or only those neighbours
        count that are inside.
    weights : {"linear", "doubled"}
        Of a sample's neighbours; doubled, one on a whole coordinate counts its cell twice.
    reduce : {"mean", "max", "max of corners"}
        Of a bin's samples; the last takes the largest weighted neighbour of any.
    angle : {"counter-clockwise", "clockwise", "degrees", "clockwise degrees", "ignored"}
        How the last number of a rotated box turns it: by so many radians, or degrees.
    empty : float
        The value of a bin that has no samples; if it is not 0, a maximum starts from it, too.
    """

    rounding: str = "none"
    shift: float = 0.0
    extra: str = "none"
    minimum: bool = False
    samples: str = "grid"
    ratio: int | None = None
    border: str = "hold"
    weights: str = "linear"
    reduce: str = "mean"
    angle: str = "counter-clockwise"
    empty: float = 0.0

    def differing(self, other: Rules) -> list[str]:
        """Return the names of the rules that are not the same."""
        names = [field.name for field in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


_POOL = Rules("half away", 0.0, "cell", True, "cells", reduce="max")
_AVERAGE = Rules("half away", 0.0, "none", True, "cells")
_ALIGN = Rules(minimum=True)
_ALIGNED = Rules(shift=0.5)
_STEPS = Rules(extra="cell", samples="steps", border="drop", reduce="max")

RULES: dict[str, Rules] = {
    "roipool.roi_pool": _POOL,
    "roipool.roi_average_pool": _AVERAGE,
    "roipool.precise_roi_pool": Rules(samples="integral", border="zero"),
    "roipool.roi_align": _ALIGNED,
    "roipool.roi_align[max]": Rules(shift=0.5, reduce="max"),
    "roipool.roi_align_rotated": _ALIGNED,
    "caffe.roi_pooling": _POOL,
    "caffe.roi_align": Rules(
        extra="cell", samples="steps", border="drop", weights="doubled", reduce="max"
    ),
    "chainer.roi_average_pooling_2d": Rules("half even", 0.0, "none", True, "cells"),
    "mxnet.ROIPooling": _POOL,
    "mxnet.ROIAlign": _STEPS,
    "mxnet.contrib_ROIAlign": _ALIGN,
    "mmcv.roi_align": _ALIGNED,
    "mmcv.roi_align[max]": Rules(shift=0.5, reduce="max", empty=-10000.0),
    "mmcv.roi_align_rotated": _ALIGNED,
    "mmcv.roi_pool": Rules(extra="pixel", samples="cells", reduce="max"),
    "maskrcnn_benchmark.roi_align": _ALIGN,
    "tensorflow.crop_and_resize": Rules(samples="ends", border="zero"),
    "roialign_pytorch.RoIAlign": Rules(shift=0.5, ratio=1, border="zero"),
    "torchvision.roi_pool": _POOL,
    "torchvision.roi_align": _ALIGN,
    "torchvision.roi_align[aligned]": _ALIGNED,
    "detectron2.ROIAlign": _ALIGNED,
    "detectron2.ROIAlignRotated": _ALIGNED,
    "onnx.RoiAlign[opset 10]": _ALIGN,
    "onnx.RoiAlign[opset 16]": _ALIGNED,
    "onnx.RoiAlign[max]": Rules(shift=0.5, reduce="max of corners"),
    "onnx.MaxRoiPool": _POOL,
    "openvino.ROIPooling": _POOL,
    "openvino.ROIAlign[asymmetric]": _ALIGN,
    "openvino.ROIAlign[half_pixel_for_nn]": _ALIGNED,
    "paddle.roi_pool": _POOL,
    "paddle.roi_align": _ALIGNED,
    "paddle.roi_align[not aligned]": _ALIGN,
}


def rules_of(name: str) -> Rules | None:
    """Return the rules of an implementation, by its name; None for a user's own."""
    return RULES.get(system_of(name))
