"""PyTorch: the operations of roipool for tensors, with derivatives.

``roipool.roi_align(tensor, ...)`` and the other operations call the functions of this package,
which have the same arguments except `out`. Importing it registers the operators
``torch.ops.roipool``, which compiled and exported programs call: import it before loading or
tracing such a program.
"""

from __future__ import annotations

import torch

from roipool import _front_ends
from roipool.torch import nn
from roipool.torch._calls import call
from roipool.torch._detectron2 import override_detectron2
from roipool.torch._onnx import onnx_translations
from roipool.torch._operations import FUNCTIONS
from roipool.torch._torchvision import override_torchvision

globals().update(FUNCTIONS)
_front_ends.serve((torch.Tensor, torch.nn.Parameter), __name__)

__all__ = [
    "call",
    "nn",
    "onnx_translations",
    "override_detectron2",
    "override_torchvision",
    *FUNCTIONS,
]
