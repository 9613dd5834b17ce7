"""Fast path of small calls: the CPU engine gets the addresses of plain tensors.

It computes most calls as the kernels do: averages of contiguous maps, of boxes in one table of the
type of the computation. Any other call, and any call with an error, takes the usual way, as all do
before torch 2.10. Calls on CUDA tensors are small in ``_launches``.
"""

from __future__ import annotations

import functools

from torch import Tensor, get_num_threads

from roipool._cpu import PreparedCall, TensorReader, is_kept
from roipool._request import Pooling
from roipool.torch._families import Settings, pooling_of
from roipool.torch._memory import FLOATS, ON_CPU, PLAIN

NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in FLOATS}

READER = TensorReader(PLAIN, ON_CPU, int)  # whose number is 0


class FastAverage:
    """Pools maps by an average whose options are prepared."""

    def __init__(self, pooling: Pooling, *, cuts: bool = False) -> None:
        self._prepared = PreparedCall(pooling, 4, cuts=cuts)
        self._size = pooling.output_size

    def __call__(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, or None if the call needs the usual path."""
        read = READER.read((features,), rois, channels_last=False)
        if read is None or not read.is_usual:
            return None
        shape, boxes = read.shapes[0], read.boxes
        pooled = features.new_empty(boxes, shape[1], *self._size)  # faster than of a tuple
        done = self._prepared(
            NAMES[features.dtype],
            shape,
            read.maps[0],
            boxes,
            read.regions[1],
            pooled.data_ptr(),
            get_num_threads(),
        )
        return pooled if done else None


@functools.lru_cache(maxsize=1024)
def fast_average(settings: Settings) -> FastAverage | None:
    """Return the fast path of an average of contiguous maps, or None if it has none."""
    pooling = pooling_of(settings.family, settings.placing, settings.size, settings.filling)
    return FastAverage(pooling, cuts=settings.cuts) if is_kept(pooling) else None
