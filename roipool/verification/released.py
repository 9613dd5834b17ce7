"""What released programs answered, and the call of `roipool.compat` that answers the same.

A folder of goldens holds inputs and answers of several programs for cases that are awkward on
purpose; its README says from which releases. `ANSWERS` says how to compute each one here. Choices
(maxima, nearest cells, argmax) agree bit for bit, sums within a few float32 ulps of the greatest
value: only the order of summation differs. A sample on the other side of a floor, ceil or outside
decision would show as a larger difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import numpy as np

from roipool._types import Method, Mode
from roipool.compat import (
    caffe,
    detectron2,
    maskrcnn_benchmark,
    mmcv,
    mxnet,
    onnx,
    roialign_pytorch,
    tensorflow,
    torchvision,
)
from roipool.verification.tolerance import Array, Comparison, compare

Put = Callable[[Array], Any]
Get = Callable[[Any], Array]

FOLDER = files("roipool.verification") / "goldens"
ULPS = 8  # of float32, relative to the greatest term
# MXNet and ONNX Runtime reject some boxes, and OpenVINO's are rotated: they have their own inputs.
OWN_INPUTS = ("mxnet", "onnxruntime", "openvino")


class Case:
    """One case: options, input arrays as attributes, and a program's answers by name.

    The inputs are `features` (N, C, H, W), `rois` (K, 5), `grad` (K, C, PH, PW), `boxes` (K, 4) as
    fractions; for MXNet also `ps_features` and `ps_grad`, with channels for every bin.
    """

    def __init__(
        self, record: Mapping[str, Any], inputs: Mapping[str, Array], answers: Mapping[str, Array]
    ) -> None:
        self.record = record
        self.number: int = record["id"]
        self.size: tuple[int, int] = tuple(record["output_size"])
        self.scale: float = record["spatial_scale"]
        self.sampling: int = record["sampling_ratio"]
        self.aligned: bool = record["aligned"]
        self.inputs = inputs
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["inputs"][name]
        except KeyError:
            raise AttributeError(name) from None

    def on(self, put: Put) -> Case:
        """Return the case with its inputs where `put` brings them."""
        inputs = {name: put(array) for name, array in self.inputs.items()}
        return Case(self.record, inputs, self.answers)

    @property
    def images(self) -> Any:
        """The image of each box."""
        return self.rois[:, 0].astype(np.int64)


def cases(system: str, folder: Traversable = FOLDER) -> Iterator[Case]:
    """Yield the cases of a folder that one system was asked."""
    prefix = f"{system}_" if system in OWN_INPUTS else ""
    inputs, answers = _arrays(folder, f"{prefix}inputs"), _arrays(folder, system)
    for record in json.loads((folder / f"{prefix}cases.json").read_text()):
        start = f"case{record['id']}_"
        yield Case(record, _of_case(inputs, start), _of_case(answers, start))


def _arrays(folder: Traversable, name: str) -> dict[str, Array]:
    with (folder / f"{name}.npz").open("rb") as stream, np.load(stream) as arrays:
        return dict(arrays)


def _of_case(arrays: dict[str, Array], start: str) -> dict[str, Array]:
    return {key.removeprefix(start): arrays[key] for key in arrays if key.startswith(start)}


class Answer(NamedTuple):
    """How to compute one of a system's answers, and how it must agree.

    `terms` gives the greatest term of the sums where that is not the answer's greatest value;
    `applies` says which cases can be asked.
    """

    system: str
    key: str
    compute: Callable[[Case], Any]
    exact: bool = False
    terms: Callable[[Case], float] | None = None
    applies: Callable[[Case], bool] = lambda case: True

    def cases(self, folder: Traversable = FOLDER) -> Iterator[Case]:
        """Yield the cases of a folder that hold this answer."""
        for case in cases(self.system, folder):
            if self.key in case.answers and self.applies(case):
                yield case

    def compare(self, case: Case, put: Put, get: Get) -> Comparison:
        """Compare what is computed here; `put` and `get` bring arrays to a device and back."""
        expected = case.answers[self.key].astype(np.float64)
        largest = self.terms(case) if self.terms else np.abs(expected).max(initial=0)
        got = get(self.compute(case.on(put)))
        return compare(got, expected, largest, 0 if self.exact else ULPS, roundings=0)


def _nhwc(array: Any) -> Any:
    return array.transpose(0, 2, 3, 1)


def _tv_align(case: Case) -> Any:
    return torchvision.roi_align(
        case.features, case.rois, case.size, case.scale, case.sampling or -1, case.aligned
    )


def _tv_align_grad(case: Case) -> Any:
    return torchvision.roi_align_backward(
        case.grad, case.rois, case.features.shape, case.scale, case.sampling or -1, case.aligned
    )


def _tv_pool(case: Case) -> tuple[Any, Any]:
    pooled = torchvision.roi_pool(
        case.features, case.rois, case.size, case.scale, return_argmax=True
    )
    assert isinstance(pooled, tuple)
    return pooled


def _tv_pool_grad(case: Case) -> Any:
    return torchvision.roi_pool_backward(
        case.grad, _tv_pool(case)[1], case.rois, case.features.shape
    )


def _caffe_pool(case: Case) -> tuple[Any, Any]:
    return caffe.roi_pooling(case.features, case.rois, *case.size, case.scale)


def _caffe_pool_exact(case: Case) -> Any:
    return caffe.roi_pooling_backward(
        case.grad, _caffe_pool(case)[1], case.rois, case.features.shape, *case.size, case.scale,
        exact_gradient=True,
    )  # fmt: skip


def _detectron2(case: Case) -> Any:
    layer = detectron2.ROIAlign(case.size, case.scale, case.sampling, case.aligned)
    return layer(case.features, case.rois)


def _maskrcnn(case: Case) -> Any:
    return maskrcnn_benchmark.roi_align(
        case.features, case.rois, case.size, case.scale, case.sampling
    )


def _mmcv(case: Case, mode: Mode) -> Any:
    return mmcv.roi_align(
        case.features, case.rois, case.size, case.scale, case.sampling, mode, case.aligned,
        return_argmax=mode == "max",
    )  # fmt: skip


def _mmcv_grad(case: Case, mode: Mode) -> Any:
    y, x = _mmcv(case, "max")[1:] if mode == "max" else (None, None)
    return mmcv.roi_align_backward(
        case.grad, case.rois, y, x, case.features.shape, case.scale, case.sampling, mode,
        case.aligned,
    )  # fmt: skip


def _tf(case: Case, method: Method) -> Any:
    return tensorflow.crop_and_resize(
        _nhwc(case.features), case.boxes, case.images, case.size, method, 0.5
    )


def _tf_grad(case: Case, method: Method) -> Any:
    return tensorflow.crop_and_resize_backward(
        _nhwc(case.grad), case.boxes, case.images, _nhwc(case.features).shape, np.float32, method
    )


def _tf_grad_boxes(case: Case) -> Any:
    return tensorflow.crop_and_resize_backward_boxes(
        _nhwc(case.grad), _nhwc(case.features), case.boxes, case.images
    )


def _tf_box_terms(case: Case) -> float:
    largest = np.abs(case.grad).max() * np.abs(case.features).max()
    return float(largest * max(case.features.shape[2:]))


def _longcw(case: Case) -> Any:
    crops = roialign_pytorch.crop_and_resize(
        case.features, case.boxes, case.images, *case.size, extrapolation_value=0.5
    )
    return crops.transpose(0, 2, 3, 1)


def _mx_pool(case: Case) -> tuple[Any, Any]:
    pooled = mxnet.ROIPooling(case.features, case.rois, case.size, case.scale, return_argmax=True)
    assert isinstance(pooled, tuple)
    return pooled


def _mx_pool_grad(case: Case) -> Any:
    return mxnet.ROIPooling_backward(case.grad, _mx_pool(case)[1], case.rois, case.features.shape)


def _mx_align(case: Case, sensitive: bool) -> Any:
    maps = case.ps_features if sensitive else case.features
    return mxnet.contrib_ROIAlign(
        maps, case.rois, case.size, case.scale, case.sampling, sensitive, case.aligned
    )


def _mx_align_grad(case: Case, sensitive: bool) -> Any:
    shape = (case.ps_features if sensitive else case.features).shape
    gradient = case.ps_grad if sensitive else case.grad
    return mxnet.contrib_ROIAlign_backward(
        gradient, case.rois, shape, case.scale, case.sampling, sensitive, case.aligned
    )


def _ort(case: Case, opset: int, mode: Mode) -> Any:
    shifted = opset == 16 and case.aligned
    rows, columns = case.size
    return onnx.RoiAlign(
        case.features, case.rois[:, 1:], case.images, mode=mode,
        output_height=rows, output_width=columns, sampling_ratio=case.sampling,
        spatial_scale=case.scale,
        coordinate_transformation_mode="half_pixel" if shifted else "output_half_pixel",
    )  # fmt: skip


def _ort_pool(case: Case) -> Any:
    return onnx.MaxRoiPool(case.features, case.rois, case.size, case.scale)


ANSWERS = {
    "torchvision roi_align": Answer("torchvision", "align", _tv_align),
    "torchvision roi_align gradient": Answer("torchvision", "align_grad", _tv_align_grad),
    "torchvision roi_pool": Answer("torchvision", "pool", lambda c: _tv_pool(c)[0], True),
    "torchvision roi_pool argmax": Answer(
        "torchvision", "pool_argmax", lambda c: _tv_pool(c)[1], True
    ),
    "torchvision roi_pool gradient": Answer("torchvision", "pool_grad", _tv_pool_grad, True),
    "caffe roi_pooling": Answer("torchvision", "pool", lambda c: _caffe_pool(c)[0], True),
    "caffe roi_pooling argmax": Answer(
        "torchvision", "pool_argmax", lambda c: _caffe_pool(c)[1], True
    ),
    "caffe roi_pooling exact gradient": Answer("torchvision", "pool_grad", _caffe_pool_exact, True),
    "detectron2 ROIAlign": Answer("torchvision", "align", _detectron2),
    "maskrcnn-benchmark roi_align": Answer(
        "torchvision", "align", _maskrcnn, applies=lambda c: not c.aligned
    ),
    "mmcv roi_align avg": Answer("mmcv", "avg", lambda c: _mmcv(c, "avg")),
    "mmcv roi_align avg gradient": Answer("mmcv", "avg_grad", lambda c: _mmcv_grad(c, "avg")),
    "mmcv roi_align max": Answer("mmcv", "max", lambda c: _mmcv(c, "max")[0], True),
    "mmcv roi_align max y": Answer("mmcv", "max_y", lambda c: _mmcv(c, "max")[1], True),
    "mmcv roi_align max x": Answer("mmcv", "max_x", lambda c: _mmcv(c, "max")[2], True),
    "mmcv roi_align max gradient": Answer("mmcv", "max_grad", lambda c: _mmcv_grad(c, "max")),
    "tensorflow bilinear": Answer("tensorflow", "bilinear", lambda c: _tf(c, "bilinear")),
    "tensorflow bilinear gradient": Answer(
        "tensorflow", "bilinear_grad", lambda c: _tf_grad(c, "bilinear")
    ),
    "tensorflow bilinear box gradient": Answer(
        "tensorflow", "bilinear_grad_boxes", _tf_grad_boxes, terms=_tf_box_terms
    ),
    "tensorflow nearest": Answer("tensorflow", "nearest", lambda c: _tf(c, "nearest"), True),
    "tensorflow nearest gradient": Answer(
        "tensorflow", "nearest_grad", lambda c: _tf_grad(c, "nearest")
    ),
    "tensorflow nearest box gradient": Answer(
        "tensorflow", "nearest_grad_boxes", _tf_grad_boxes, terms=_tf_box_terms
    ),
    "RoIAlign.pytorch crop_and_resize": Answer("tensorflow", "bilinear", _longcw),
    "mxnet ROIPooling": Answer("mxnet", "pool", lambda c: _mx_pool(c)[0], True),
    "mxnet ROIPooling gradient": Answer("mxnet", "pool_grad", _mx_pool_grad, True),
    "mxnet contrib.ROIAlign": Answer("mxnet", "align", lambda c: _mx_align(c, False)),
    "mxnet contrib.ROIAlign gradient": Answer(
        "mxnet", "align_grad", lambda c: _mx_align_grad(c, False)
    ),
    "mxnet position_sensitive": Answer("mxnet", "ps", lambda c: _mx_align(c, True)),
    "mxnet position_sensitive gradient": Answer(
        "mxnet", "ps_grad", lambda c: _mx_align_grad(c, True)
    ),
    "onnxruntime opset 10 avg": Answer("onnxruntime", "v10_avg", lambda c: _ort(c, 10, "avg")),
    "onnxruntime opset 10 max": Answer(
        "onnxruntime", "v10_max", lambda c: _ort(c, 10, "max"), True
    ),
    "onnxruntime opset 16 avg": Answer("onnxruntime", "v16_avg", lambda c: _ort(c, 16, "avg")),
    "onnxruntime opset 16 max": Answer(
        "onnxruntime", "v16_max", lambda c: _ort(c, 16, "max"), True
    ),
    "onnxruntime MaxRoiPool": Answer("onnxruntime", "maxroipool", _ort_pool, True),
}
