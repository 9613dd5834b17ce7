"""Adapters that call the operators of installed libraries through one interface.

To add a library, write its adapter class in a new file and list it in `LIBRARIES`. The library is
imported when the class is instantiated.

This package is also a program: ``python roipool/tools/libraries`` serves a library, or arbitrary
functions, to another process, often from another environment. It therefore depends only on NumPy
and the library, uses relative imports, and runs on Python 3.8. The parent's side, `process` and
`client`, needs the Python of roipool.
"""

from __future__ import annotations

from .library import Absent, InstalledLibrary, opened, prepared
from .mxnet import MXNet
from .onnxruntime import OnnxRuntime
from .openvino import OpenVino
from .paddle import Paddle
from .task import LevelTask, Task, channels_of_groups, in_given_order, moves_bins, single_call
from .tensorflow import TensorFlow
from .torch import Detectron2, Mmcv, Torchvision

__all__ = [
    "LIBRARIES",
    "OWN_PROCESS",
    "Absent",
    "InstalledLibrary",
    "LevelTask",
    "Task",
    "channels_of_groups",
    "in_given_order",
    "moves_bins",
    "opened",
    "prepared",
    "single_call",
]

LIBRARIES: dict[str, type[InstalledLibrary]] = {
    "torchvision": Torchvision,
    "mmcv": Mmcv,
    "detectron2": Detectron2,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "tensorflow": TensorFlow,
    "mxnet": MXNet,
    "paddle": Paddle,
}

# Libraries that need a process: TensorFlow fixes its number of threads at the first use; the others
# cannot be installed beside current releases of NumPy.
OWN_PROCESS = ("tensorflow", "mxnet", "paddle")
