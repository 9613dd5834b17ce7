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

import torch
from torch import Tensor

from roipool.torch._memory import with_values

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

        tensor = with_values(tensor.detach())
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
