"""PyTorch: what serves tensors, and what only programs with tensors use.

``roipool.roi_align(tensor, ...)`` and every other function of ``roipool`` and ``roipool.compat``
take tensors; :func:`call` computes them. Importing this package registers the operators
``torch.ops.roipool``, which compiled and exported programs call: import it before loading or
tracing such a program.
"""

from __future__ import annotations

import torch

from roipool import _arguments, _front_ends
from roipool.torch import _library as _library  # registers operators
from roipool.torch import nn
from roipool.torch._calls import call as call
from roipool.torch._detectron2 import override_detectron2
from roipool.torch._namespace import DTYPES
from roipool.torch._onnx import onnx_translations
from roipool.torch._torchvision import override_torchvision

_arguments.SYMBOLS.add(torch.SymInt)
_arguments.DTYPE_NAMES.update({dtype: name for name, dtype in DTYPES.items()})
_front_ends.serve((torch.Tensor, torch.nn.Parameter), __name__)

__all__ = ["nn", "onnx_translations", "override_detectron2", "override_torchvision"]
