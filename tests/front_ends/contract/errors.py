"""Errors name the operation and the argument, also in compiled programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from _support.cases import ALL_CASES, OperationCase, maps

import roipool

from .front_end import Contract, Form, FrontEnd, directly_and_compiled, over
from .levels import ROIS as PYRAMID_ROIS
from .levels import SCALES, pyramid

ROIS = np.array([[0, 1, 1, 4, 4.0], [1, 0, 2, 5.5, 7]])
SHAPE = (2, 3, 8, 9)
Arguments = dict[str, Any]


class Usual:
    """A front end's arrays for valid calls."""

    def __init__(self, front_end: FrontEnd) -> None:
        self.array = front_end.array
        self.x = front_end.maps(maps(), Form("float64"))
        self.integers = front_end.maps(maps(), Form("int32"))
        self.rois, self.boxes = self.array(ROIS), self.array(ROIS[:, 1:])
        self.pooled = self.array(np.ones((2, 3, 2, 2)))
        self.float32 = self.array(np.ones((2, 3, 2, 2), "float32"))
        self.maps, self.small_maps = pyramid(front_end), pyramid(front_end, "float32")

    def arguments(self, function: str) -> Arguments:
        """Return valid arguments of a function."""
        gradient: Arguments = {"grad_output": self.pooled, "rois": self.rois, "input_shape": SHAPE}
        pooling: Arguments = {"features": self.x, "rois": self.rois, "output_size": 2}
        return {
            "roi_align": pooling,
            "roi_align_backward": gradient,
            "roi_align_backward_rois": {
                "grad_output": self.pooled,
                "features": self.x,
                "rois": self.rois,
            },
            "roi_pool_backward": gradient | {"argmax": self.pooled},
            "multilevel_roi_align": {
                "features": self.maps,
                "rois": self.array(PYRAMID_ROIS),
                "output_size": 2,
                "spatial_scales": SCALES,
            },
        }[function]


class Wrong(NamedTuple):
    """A wrong call: its changes of the valid arguments, and the expected error."""

    change: Callable[[Usual], Arguments]
    error: type[Exception]
    message: str  # {array} is replaced by the front end's word for its arrays
    function: str = "roi_align"


WRONG = {
    "integer maps": Wrong(lambda e: {"features": e.integers}, TypeError, "features must"),
    "three dimensions": Wrong(
        lambda e: {"features": e.x[0]}, ValueError, "features must have 4 dimensions"
    ),
    "three columns": Wrong(
        lambda e: {"rois": e.array(ROIS[:, :3])}, ValueError, r"rois must have shape \(K, 5\)"
    ),
    "boxes by image": Wrong(
        lambda e: {"rois": e.array(ROIS[None, :, 1:])}, ValueError, r"give list\(rois\)"
    ),
    "no indices": Wrong(lambda e: {"rois": e.boxes}, ValueError, "need batch_indices"),
    "indices twice": Wrong(
        lambda e: {"batch_indices": e.array(ROIS[:, 0])}, ValueError, "hold batch indices already"
    ),
    "too few indices": Wrong(
        lambda e: {"rois": e.boxes, "batch_indices": e.array(ROIS[:1, 0])},
        ValueError,
        "batch_indices must have",
    ),
    "lists of one image": Wrong(
        lambda e: {"rois": [e.boxes]}, ValueError, "one (tensor|array) per image"
    ),
    "a table in a list": Wrong(
        lambda e: {"rois": [e.boxes, e.rois]}, ValueError, r"rois\[1\] must have shape"
    ),
    "boolean boxes": Wrong(lambda e: {"rois": e.array(ROIS > 0)}, TypeError, "rois must hold real"),
    "text as boxes": Wrong(lambda e: {"rois": "boxes"}, TypeError, "rois must be"),
    "an index of no image": Wrong(
        lambda e: {"rois": e.array(ROIS + 1)},
        ValueError,
        r"rois\[1, 0\] is 2.0, but batch indices must be",
    ),
    "NaN as index": Wrong(
        lambda e: {"rois": e.array(ROIS * [np.nan, 1, 1, 1, 1])},
        ValueError,
        r"rois\[0, 0\] is nan, but batch indices must be",
    ),
    "size": Wrong(lambda e: {"output_size": 0}, ValueError, "output_size must be from 1"),
    "scale": Wrong(
        lambda e: {"spatial_scale": float("nan")}, ValueError, "spatial_scale must be finite"
    ),
    "mode": Wrong(lambda e: {"mode": "sum"}, ValueError, "mode must be"),
    "layout": Wrong(lambda e: {"layout": "HWCN"}, ValueError, "layout must be"),
    "out": Wrong(lambda e: {"out": np.zeros(3)}, TypeError, "out must be None"),
    "argmax of an average": Wrong(
        lambda e: {"return_argmax": True}, ValueError, "return_argmax must be False"
    ),
}
WRONG_PYRAMIDS = {
    name: Wrong(*row, function="multilevel_roi_align")
    for name, row in {
        "one map": (
            lambda e: {"features": e.maps[0]},
            TypeError,
            "features must be a list or tuple",
        ),
        "a number among maps": (
            lambda e: {"features": [*e.maps[:2], 1.0]},
            TypeError,
            r"features\[2\] must be a {array}",
        ),
        "two types": (
            lambda e: {"features": [*e.maps[:2], e.small_maps[2]]},
            TypeError,
            r"features\[2\] must have the dtype of features\[0\]",
        ),
        "channels": (
            lambda e: {"features": [*e.maps[:2], e.maps[2][:, :1]]},
            ValueError,
            "equal numbers of",
        ),
        "scales": (
            lambda e: {"spatial_scales": (1.0,)},
            ValueError,
            "spatial_scales must hold one number",
        ),
        "a scale": (
            lambda e: {"spatial_scales": 1.0},
            TypeError,
            "spatial_scales must be a list or tuple",
        ),
        "a scale of 0": (
            lambda e: {"spatial_scales": (0.0, 1.0, 2.0)},
            ValueError,
            "to 2.*100 without levels",
        ),
        "float levels": (
            lambda e: {"levels": e.array(np.zeros(3))},
            TypeError,
            "levels must hold integers",
        ),
        "few levels": (
            lambda e: {"levels": e.array(np.array([0]))},
            ValueError,
            r"levels must have shape \(3,\)",
        ),
        "a level of none": (
            lambda e: {"levels": e.array(np.array([0, 1, 3]))},
            ValueError,
            "levels must be from 0 to 2",
        ),
        "out": (lambda e: {"out": np.zeros(3)}, TypeError, "out must be None"),
        "bins": (lambda e: {"output_size": 0}, ValueError, "output_size must be from 1"),
    }.items()
}
WRONG_GRADIENTS = {
    "shape of a gradient": Wrong(
        lambda e: {"input_shape": (2, 4, 8, 9)},
        ValueError,
        "grad_output must have shape",
        "roi_align_backward",
    ),
    "no argmax of samples": Wrong(
        lambda e: {"mode": "max"}, TypeError, "argmax must be", "roi_align_backward"
    ),
    "no argmax": Wrong(
        lambda e: {"argmax": None}, TypeError, "argmax must be", "roi_pool_backward"
    ),
    "an argmax of floats": Wrong(
        lambda e: {}, TypeError, "argmax must be an integer", "roi_pool_backward"
    ),
    "types of a gradient": Wrong(
        lambda e: {"grad_output": e.float32},
        TypeError,
        "grad_output must have the dtype of features",
        "roi_align_backward_rois",
    ),
}


def check(front_end: FrontEnd, wrong: Wrong, name: str, *, compiled: bool) -> None:
    """Make a wrong call, directly or within the compiler."""
    kind, message = front_end.errors.get(name, (wrong.error, wrong.message))
    message = message.replace("{array}", front_end.array_name)
    operation = wrong.function.partition("_backward")[0]
    usual = Usual(front_end)
    arguments = usual.arguments(wrong.function) | wrong.change(usual)

    def call() -> Any:
        return getattr(roipool, wrong.function)(**arguments)

    if not compiled:
        with pytest.raises(kind, match=f"^{operation}[a-z_]*: .*{message}"):
            call()
    elif name not in front_end.not_compiled:
        kind = front_end.compiler_error or kind
        with pytest.raises(kind, match=f"{operation}[a-z_]*: .*{message}"):
            front_end.compiled(call)()


class Errors(Contract):
    """Wrong calls of forwards."""

    @directly_and_compiled
    @pytest.mark.parametrize("name", WRONG)
    def test_errors(self, front_end: FrontEnd, name: str, compiled: bool) -> None:
        check(front_end, WRONG[name], name, compiled=compiled)

    @directly_and_compiled
    @pytest.mark.parametrize("name", WRONG_PYRAMIDS)
    def test_errors_of_pyramids(self, front_end: FrontEnd, name: str, compiled: bool) -> None:
        check(front_end, WRONG_PYRAMIDS[name], name, compiled=compiled)

    def test_errors_of_signatures(self, front_end: FrontEnd) -> None:
        """Python raises them."""
        usual = Usual(front_end)
        with pytest.raises(TypeError, match="output_size"):
            roipool.roi_align(usual.x, usual.rois)
        with pytest.raises(TypeError, match="ratio"):
            roipool.roi_align(usual.x, usual.rois, 2, ratio=1)
        with pytest.raises(TypeError, match="rois"):
            roipool.roi_align(usual.x, usual.rois, 2, rois=usual.rois)

    @directly_and_compiled
    @over(ALL_CASES)
    def test_errors_of_every_operation_name_it(
        self, front_end: FrontEnd, case: OperationCase, compiled: bool
    ) -> None:
        function = front_end.compiled(case.pool) if compiled else case.pool
        at = case.boxes(), case.indices()
        boxes, indices = map(front_end.array, at)
        features, integers = (front_end.maps(maps(), Form(one)) for one in ("float32", "int32"))
        for arguments, kind, message in (
            ((integers, boxes, indices), TypeError, "must (have|be) .*(dtype|float)"),
            ((features, front_end.array(at[0] > 1), indices), TypeError, "must hold real numbers"),
            ((features, boxes, front_end.array(at[1][:1])), ValueError, "must have shape"),
        ):
            with pytest.raises((compiled and front_end.compiler_error) or kind) as raised:
                function(*arguments)
            assert re.search(f"{case.op.forward}: .*{message}", str(raised.value))


class ErrorsOfGradients(Contract):
    """Wrong calls of gradient functions."""

    @directly_and_compiled
    @pytest.mark.parametrize("name", WRONG_GRADIENTS)
    def test_errors_of_gradients(self, front_end: FrontEnd, name: str, compiled: bool) -> None:
        check(front_end, WRONG_GRADIENTS[name], name, compiled=compiled)
