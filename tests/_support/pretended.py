"""Tensors of the host that pose as a GPU's, on the emulator."""

from __future__ import annotations

from typing import Any

import torch

from roipool.torch._cuda import Cuda


class OldStream:
    """Stream 7 of torch before 2.10."""

    cuda_stream = 7


class TorchStream(OldStream):
    """Stream 7 of torch since 2.10."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream


class Pretended(Cuda):
    """CUDA tensors on the host; counts what torch allocates, and knows where."""

    def __init__(self, stream: type[OldStream] = TorchStream) -> None:
        super().__init__(lambda device: stream())
        self.allocated = 0
        self.devices: set[torch.device] = set()

    def allocate(self, device: torch.device, size: int) -> Any:
        self.allocated += size
        self.devices.add(device)
        return super().allocate(device, size)
