"""CUDA tensors: CuPy's arrays over their memory, on torch's current stream.

All memory comes from torch's allocator, so that a call can be captured in a
CUDA graph. Make one call before the capture: NVRTC takes half a second to compile each kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Cuda:
    """CUDA tensors, as CuPy arrays; CuPy is imported by the first call.

    Parameters
    ----------
    current_stream : callable
        Returns torch's current stream on a device.
    """

    def __init__(self, current_stream: Callable[[Any], Any] = torch.cuda.current_stream) -> None:
        self._current_stream = current_stream

    def engine(self) -> Any:
        """Return the CUDA engine."""
        from roipool._cuda import engine

        return engine

    def array(self, tensor: Tensor) -> Any:
        """Return a tensor's memory as a CuPy array; bfloat16 becomes int16."""
        import cupy

        tensor = tensor.detach().resolve_neg()  # a view that is to be read with the other sign
        return cupy.from_dlpack(
            tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
        )

    def tensor(self, array: Any) -> Tensor:
        """Return a CuPy array as a tensor."""
        return torch.from_dlpack(array)

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
        memory = cupy.cuda.UnownedMemory(tensor.data_ptr(), size, tensor, tensor.get_device())
        return cupy.cuda.MemoryPointer(memory, 0)


CUDA = Cuda()
