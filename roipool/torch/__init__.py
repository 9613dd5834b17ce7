"""PyTorch: the operations of roipool for tensors, with derivatives.

``roipool.roi_align(tensor, ...)`` and the others call the functions of this package, which have the
same arguments, `out` apart. Importing it registers the operators ``torch.ops.roipool``, which
compiled and exported programs call: import it before such a program is loaded or traced.
"""

from __future__ import annotations

import importlib

import torch

from roipool import _front_ends
from roipool._definitions import OPS
from roipool.torch._onnx import onnx_translations
from roipool.torch._operations import public_functions
from roipool.torch._torchvision import override_torchvision

_public = {
    name: function
    for op in OPS.values()
    for name, function in vars(importlib.import_module(f"roipool.ops.{op.forward}")).items()
    if name in (op.forward, op.backward, op.backward_boxes)
}
globals().update(public_functions(_public))

_front_ends.serve((torch.Tensor, torch.nn.Parameter), __name__)

__all__ = ["nn", "onnx_translations", "override_torchvision", *_public]

from roipool.torch import nn  # noqa: E402  # its modules call the functions above
