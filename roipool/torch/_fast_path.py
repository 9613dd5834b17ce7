"""Fast path of small calls: the CPU engine gets the addresses of plain tensors.

It computes most calls as the kernels do: averages of contiguous maps, of boxes in one table of the
type of the computation. Any other call, and any call with an error, takes the usual way. CUDA
tensors have a fast path of their own, in ``_launches``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, get_num_threads

from roipool._cpu import PreparedCall, is_kept
from roipool._request import Pooling
from roipool.torch._families import Settings, pooling_of
from roipool.torch._launches import BoxTensors, pooled, verb_of
from roipool.torch._memory import is_channels_last

# Types of maps, with their names for the engine and the type of a table of boxes.
TYPES = {
    torch.float32: ("float32", torch.float32),
    torch.float64: ("float64", torch.float64),
    torch.float16: ("float16", torch.float32),
    torch.bfloat16: ("bfloat16", torch.float32),
}


class FastAverage:
    """Pools maps by an average whose options are prepared."""

    def __init__(self, pooling: Pooling, columns: int, *, cuts: bool = False) -> None:
        self._prepared = PreparedCall(pooling, columns, cuts=cuts)
        self._pooling, self._cuts = pooling, cuts
        self._on_gpu: dict[bool, Any] = {}  # launches, by whether maps are channels last
        self._columns = columns + 1
        self._size = pooling.output_size

    def __call__(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, or None if the call needs the usual path."""
        if features.is_cuda and features.get_device() >= 0:  # which a subclass may only say
            return self.on_gpu(features, rois)
        types = TYPES.get(features.dtype)
        if types is None or rois.dtype is not types[1]:
            return None
        if not (_is_memory(features) and _is_memory(rois)):
            return None
        shape, table = features.shape, rois.shape
        if len(shape) != 4 or len(table) != 2 or table[1] != self._columns:
            return None
        boxes = table[0]
        pooled = features.new_empty(boxes, shape[1], *self._size)  # faster than of a tuple
        done = self._prepared(
            types[0],
            shape,
            features.data_ptr(),
            boxes,
            rois.data_ptr(),
            pooled.data_ptr(),
            get_num_threads(),
        )
        return pooled if done else None

    def on_gpu(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values of CUDA tensors, or None if the call needs the usual path."""
        last = is_channels_last(features)
        verb = self._on_gpu.get(last)
        if verb is None:
            pooling = self._pooling._replace(layout="NHWC" if last else "NCHW")
            verb = self._on_gpu[last] = verb_of("average", pooling)
        return pooled(verb, BoxTensors(rois, None, None, self._cuts), (features,))


@functools.lru_cache(maxsize=1024)
def fast_average(settings: Settings) -> FastAverage | None:
    """Return the fast path of an average of contiguous maps, or None if it has none."""
    pooling = pooling_of(settings.family, settings.placing, settings.size, settings.filling)
    return FastAverage(pooling, 4, cuts=settings.cuts) if is_kept(pooling) else None


def _is_memory(tensor: Tensor) -> bool:
    """Return whether a tensor is contiguous memory of the host that has not been freed."""
    try:
        held = tensor.untyped_storage().nbytes()
    except NotImplementedError:  # no storage: a sparse tensor, for example
        return False
    is_plain = tensor.is_cpu and tensor.is_contiguous()
    if not is_plain or tensor.is_neg() or tensor.is_nested:
        return False
    end = tensor.storage_offset() + tensor.numel()
    return bool(end * tensor.element_size() <= held)
