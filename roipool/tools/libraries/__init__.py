"""The operators of other libraries behind one interface: a class for each.

To add a library, write its class in a file of its own and list it in `LIBRARIES`. A library is
imported when an object is made of its class, never before.

This package is also a program: ``python roipool/tools/libraries`` serves a library, or anybody's
functions, to another process, often from another environment. It therefore needs nothing but NumPy
and what it serves, imports its own modules relatively, and keeps to what Python 3.8 understands.
The other side, `process` and `worker`, does not.
"""

from __future__ import annotations

from .library import Absent, Library, opened, prepared
from .mxnet import MXNet
from .onnxruntime import OnnxRuntime
from .openvino import OpenVino
from .paddle import Paddle
from .task import Level, Task, in_given_order, single_call
from .tensorflow import TensorFlow
from .torch import Detectron2, Mmcv, Torchvision

__all__ = [
    "LIBRARIES",
    "OWN_PROCESS",
    "Absent",
    "Level",
    "Library",
    "Task",
    "in_given_order",
    "opened",
    "prepared",
    "single_call",
]

LIBRARIES: dict[str, type[Library]] = {
    "torchvision": Torchvision,
    "mmcv": Mmcv,
    "detectron2": Detectron2,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "tensorflow": TensorFlow,
    "mxnet": MXNet,
    "paddle": Paddle,
}

# TensorFlow settles its number of threads when it is first used, so each number needs a process;
# the others do not live in one environment with present releases of NumPy.
OWN_PROCESS = ("tensorflow", "mxnet", "paddle")
