"""Each framework's own version: its names, argument order, defaults, layout and numbers.

Every module is named after its system. Its functions reproduce that system's numbers wherever its
behaviour is defined, quirks included; where the original reads out of bounds, crashes or depends on
memory, the result is bounded and the docstring says so. Every operation has a ``..._backward``;
where the original's gradient is not the derivative of its own forward, ``exact_gradient=True``
gives the derivative.

CuPy arrays give CuPy arrays, computed on their device without waiting for it. What needs values
(a batch index that names no image, coordinates that must be finite, an argmax that must lie in the
map) is checked for NumPy arrays only, unless :func:`roipool.set_debug` asks for it: on a GPU such a
box pools to nothing and has no gradient.
"""

from roipool.compat import (
    caffe,
    chainer,
    detectron2,
    maskrcnn_benchmark,
    mmcv,
    mxnet,
    onnx,
    paddle,
    precise_roi_pooling,
    roialign_pytorch,
    tensorflow,
    torchvision,
)

__all__ = [
    "caffe",
    "chainer",
    "detectron2",
    "maskrcnn_benchmark",
    "mmcv",
    "mxnet",
    "onnx",
    "paddle",
    "precise_roi_pooling",
    "roialign_pytorch",
    "tensorflow",
    "torchvision",
]
