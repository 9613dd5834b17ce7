"""Fast path of small calls: plain tensors go to the CPU engine by their addresses.

It does what the operators do, for what most calls are: averages of NCHW maps on the CPU, boxes in
one table of the type that they are computed in, nothing to differentiate, trace or batch. Any other
call, and one that must be an error, takes the usual way.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from roipool._cpu import PreparedAverage
from roipool._definitions import TRAITS, Op
from roipool._pooling import Pooling
from roipool.torch._memory import holds_memory

# Types of maps, with their names for the engine and the type of a table of boxes.
TYPES = {
    torch.float32: ("float32", torch.float32),
    torch.float64: ("float64", torch.float64),
    torch.float16: ("float16", torch.float32),
    torch.bfloat16: ("bfloat16", torch.float32),
}


class AtOnce:
    """Pools maps by an average with its options kept."""

    def __init__(self, op: Op, pooling: Pooling) -> None:
        self._prepared = PreparedAverage(pooling, op.columns)
        self._columns = op.columns + 1
        self._size = pooling.output_size

    def __call__(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, or None where the call must take the usual way."""
        if not (type(features) is type(rois) is Tensor and is_without_transforms()):
            return None
        if (features.requires_grad or rois.requires_grad) and torch.is_grad_enabled():
            return None
        return self.pool(features, rois)

    def pool(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Pool without checking for autograd or tracing; the caller has."""
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


def at_once(op: Op, pooling: Pooling) -> AtOnce | None:
    """Return the fast path of a call, or None if it has none."""
    is_table = not op.form.is_normalised and op.columns == 4
    if not is_table or pooling.layout != "NCHW" or TRAITS[pooling.definition.name].kind == "points":
        return None
    return AtOnce(op, pooling)


def is_without_transforms() -> bool:
    """Return whether a call is what it seems: no trace, batch, dual number or mode."""
    return not (
        torch._C._len_torch_dispatch_stack()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _is_memory(tensor: Tensor, dimensions: int) -> bool:
    """Return whether a tensor is memory of the host, in order."""
    return (
        tensor.dim() == dimensions
        and tensor.is_cpu
        and torch._C._has_storage(tensor)
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and holds_memory(tensor)
    )
