"""CUDA tensors: CuPy's arrays over their memory, on torch's current stream.

All memory comes from torch's allocator, so that a call can be captured in a
CUDA graph. Make one call before the capture: NVRTC takes half a second to compile each kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from roipool._request import Pooling

Kind = tuple[np.dtype[Any], np.dtype[Any]]

ROCM = "roipool's kernels are for NVIDIA GPUs; this PyTorch is made for AMD's (ROCm)"


class Cuda:
    """CUDA tensors, as CuPy arrays; CuPy is imported by the first call.

    Parameters
    ----------
    current_stream : callable
        Returns torch's current stream on a device.
    """

    def __init__(self, current_stream: Callable[[Any], Any] = torch.cuda.current_stream) -> None:
        self._current_stream = current_stream
        self._allocated: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # by address

    def engine(self) -> Any:
        """Return the CUDA engine."""
        if torch.version.hip is not None:
            raise RuntimeError(ROCM)
        from roipool._cuda import engine

        return engine

    def why_not(self) -> str | None:
        """Return why CUDA tensors cannot be computed, or None; also None if there is no GPU."""
        try:
            if torch.cuda.is_available():
                self.engine()
        except (ImportError, RuntimeError) as error:
            return str(error)
        return None

    def array(self, tensor: Tensor) -> Any:
        """Return a tensor's memory as a CuPy array; bfloat16 becomes int16."""
        import cupy

        tensor = tensor.detach().resolve_neg()  # a view that is to be read with the other sign
        return cupy.from_dlpack(
            tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
        )

    def tensor(self, array: Any) -> Tensor:
        """Return an array of the engine as a tensor.

        It is the tensor that torch allocated, for which `record_stream` counts: torch ignores it
        for memory that comes by DLPack.
        """
        owner = self._allocated.get(array.data.ptr)
        if owner is None or owner.numel() != array.nbytes or not array.flags.c_contiguous:
            return torch.from_dlpack(array)
        dtype: torch.dtype = getattr(torch, array.dtype.name)
        return owner.view(dtype).view(array.shape)

    @contextmanager
    def on_device_of(self, tensor: Tensor) -> Iterator[None]:
        """Work on a tensor's device, torch's current stream there, and torch's memory.

        Entered in every call, because autograd runs backward functions on its own threads, and
        because torch exports only tensors of its current device to other libraries.
        """
        import cupy

        stream, number = self._current_stream(tensor.device), tensor.get_device()
        # Streams of torch before 2.10, and CuPy before 14, do not know this protocol.
        if hasattr(stream, "__cuda_stream__") and hasattr(cupy.cuda.Stream, "from_external"):
            external = cupy.cuda.Stream.from_external(stream)
        else:
            external = cupy.cuda.ExternalStream(stream.cuda_stream, number)
        with (
            torch.cuda.device(number),
            cupy.cuda.Device(number),
            external,
            cupy.cuda.using_allocator(functools.partial(self.allocate, tensor.device)),
        ):
            yield

    def allocate(self, device: torch.device, size: int) -> Any:
        """Allocate device memory for CuPy with torch; freed with the last array that uses it."""
        import cupy

        tensor = torch.empty(size, dtype=torch.uint8, device=device)
        self._allocated[tensor.data_ptr()] = tensor
        memory = cupy.cuda.UnownedMemory(tensor.data_ptr(), size, tensor, tensor.get_device())
        return cupy.cuda.MemoryPointer(memory, 0)


CUDA = Cuda()


# ---- Small calls


def _kind(maps: type, boxes: torch.dtype) -> tuple[Kind, torch.dtype]:
    return (np.dtype(maps), np.dtype(str(boxes).removeprefix("torch."))), boxes


# NumPy's types of maps and boxes, and torch's of boxes.
KINDS = {
    torch.float16: _kind(np.float16, torch.float32),
    torch.bfloat16: _kind(np.int16, torch.float32),
    torch.float32: _kind(np.float32, torch.float32),
    torch.float64: _kind(np.float64, torch.float64),
}


class SmallAverage:
    """Pools CUDA tensors by an average of one map, whose options are prepared.

    As ``roipool._cuda.kept.SmallAverage`` does for arrays, on torch's current stream.

    Parameters
    ----------
    pooling : Pooling
        The request, whatever its layout.
    columns : int
        Numbers of a box.
    cuts : bool
        Whether batch indices are cut to whole numbers.
    """

    def __init__(self, pooling: Pooling, columns: int, *, cuts: bool) -> None:
        self._pooling, self._columns, self._cuts = pooling, columns, cuts
        self._launches: dict[str, Any] = {}

    def __call__(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, or None if the call needs the general path."""
        kind = KINDS.get(features.dtype)
        if kind is None or rois.dtype is not kind[1] or not is_readable(rois):
            return None
        gpu, shape, table = features.get_device(), features.shape, rois.shape
        if len(shape) != 4 or len(table) != 2 or table[1] != self._columns + 1:
            return None
        if rois.get_device() != gpu or current_device() != gpu or not rois.is_contiguous():
            return None
        boxes, size = table[0], self._pooling.output_size
        if features.is_contiguous():
            layout, stored = "NCHW", shape
            pooled = features.new_empty(boxes, shape[1], *size)  # faster than of a tuple
        elif features.is_contiguous(memory_format=torch.channels_last):
            layout, stored = "NHWC", (shape[0], shape[2], shape[3], shape[1])
            pooled = features.new_empty(boxes, *size, shape[1]).permute(0, 3, 1, 2)
        else:
            return None
        if not is_readable(features):
            return None
        launches = self._launches.get(layout) or self._prepared(layout)
        done = launches(
            kind[0],
            stored,
            boxes,
            gpu,
            current_stream(gpu),
            features.data_ptr(),
            rois.data_ptr(),
            pooled.data_ptr(),
        )
        return pooled if done else None

    def _prepared(self, layout: Any) -> Any:
        """Return the launches for maps in a layout."""
        CUDA.engine()  # an error of it says what is missing
        from roipool._cuda.kept import average_launches

        pooling = self._pooling._replace(layout=layout)
        found = average_launches(pooling, self._columns, cuts=self._cuts)
        return self._launches.setdefault(layout, found)


def current_device() -> int:
    """Return the number of the current GPU."""
    number: int = torch._C._cuda_getDevice()
    return number


def current_stream(gpu: int) -> int:
    """Return the driver's handle of torch's current stream on a GPU."""
    handle: int = torch._C._cuda_getCurrentRawStream(gpu)
    return handle


def is_readable(tensor: Tensor) -> bool:
    """Return whether a plain tensor's memory has not been freed, and is read as it is."""
    if tensor.is_neg() or tensor.is_nested:
        return False
    end = tensor.storage_offset() + tensor.numel()
    return bool(end * tensor.element_size() <= tensor.untyped_storage().nbytes())
