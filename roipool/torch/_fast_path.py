"""Fast path of small calls: plain tensors go to the CPU engine by their addresses.

It computes most calls as the kernels do: averages of contiguous maps on the CPU, of boxes in one
table of the type of the computation. Any other call, and any call with an error, takes the usual
way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from roipool._cpu import PreparedAverage
from roipool._definitions import TRAITS, Op
from roipool._pooling import Pooling

# Types of maps, with their names for the engine and the type of a table of boxes.
TYPES = {
    torch.float32: ("float32", torch.float32),
    torch.float64: ("float64", torch.float64),
    torch.float16: ("float16", torch.float32),
    torch.bfloat16: ("bfloat16", torch.float32),
}


class FastAverage:
    """Pools maps by an average with its options kept."""

    def __init__(self, op: Op, pooling: Pooling) -> None:
        self._prepared = PreparedAverage(pooling, op.columns)
        self._columns = op.columns + 1
        self._size = pooling.output_size

    def __call__(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, or None where the call must take the usual way."""
        types = TYPES.get(features.dtype)
        if types is None or rois.dtype is not types[1]:
            return None
        if not (_is_memory(features, 4) and _is_memory(rois, 2)):
            return None
        boxes, columns = rois.shape
        if columns != self._columns:
            return None
        shape = features.shape
        pooled = features.new_empty((boxes, shape[1], *self._size))
        done = self._prepared(
            types[0], shape, features.data_ptr(), boxes, rois.data_ptr(), pooled.data_ptr(),
            torch.get_num_threads(),
        )  # fmt: skip
        return pooled if done else None


def fast_average(op: Op, pooling: Pooling) -> FastAverage | None:
    """Return the fast path of a call, or None if it has none."""
    is_table = not op.form.is_normalised and op.columns == 4
    if not is_table or pooling.layout != "NCHW" or TRAITS[pooling.definition.name].kind == "points":
        return None
    return FastAverage(op, pooling)


def _is_memory(tensor: Tensor, dimensions: int) -> bool:
    """Return whether a tensor is memory of the host, in order, that nobody has freed."""
    if not (
        tensor.dim() == dimensions
        and tensor.is_cpu
        and torch._C._has_storage(tensor)
        and tensor.is_contiguous()
        and not tensor.is_neg()
    ):
        return False
    end = tensor.storage_offset() + tensor.numel()
    return end * tensor.element_size() <= tensor.untyped_storage().nbytes()
