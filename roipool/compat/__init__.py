"""The frameworks' own versions, with their names, argument order, defaults, layout and numbers.

Each module is named after its framework. Its functions reproduce the framework's numbers, including
quirks, wherever its behaviour is defined. Where the original reads out of bounds, crashes or
depends on memory contents, the result is defined and the docstring says so. Every operation has a
``..._backward``; if the original's gradient is not the derivative of its own forward,
``exact_gradient=True`` returns the derivative.

Every function takes the arrays that roipool's own operations take: those of NumPy, CuPy, PyTorch,
JAX and Dask, and any other with DLPack.

CuPy arrays give CuPy arrays, computed on their device without synchronisation. Checks of values (of
batch indices beyond the batch, of coordinates that must be finite, of an argmax outside the map)
apply only to NumPy arrays, unless enabled by :func:`roipool.set_debug`. On a GPU such a box pools
to nothing and has no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roipool._lazy import importer_of

if TYPE_CHECKING:
    from roipool.compat import (
        caffe,
        chainer,
        chainercv,
        detectron2,
        maskrcnn_benchmark,
        matterport,
        medicaldetectiontoolkit,
        medvision,
        megengine,
        mmcv,
        mmdet,
        model_garden,
        mxnet,
        onnx,
        openvino,
        paddle,
        precise_roi_pooling,
        roialign_pytorch,
        tensorflow,
        torchvision,
    )

__all__ = [
    "caffe",
    "chainer",
    "chainercv",
    "detectron2",
    "maskrcnn_benchmark",
    "matterport",
    "medicaldetectiontoolkit",
    "medvision",
    "megengine",
    "mmcv",
    "mmdet",
    "model_garden",
    "mxnet",
    "onnx",
    "openvino",
    "paddle",
    "precise_roi_pooling",
    "roialign_pytorch",
    "tensorflow",
    "torchvision",
]

if not TYPE_CHECKING:  # a program needs few of them
    __getattr__ = importer_of(__name__, __all__)


def __dir__() -> list[str]:
    """Return the names of the modules, imported or not."""
    return sorted(__all__)
