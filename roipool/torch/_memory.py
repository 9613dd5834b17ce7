"""Tensors as the arrays of an engine: their memory, never a copy where one is not needed.

The devices differ in their :class:`Bridge`. There is one for the CPU here, and one
for CUDA in ``_cuda``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from roipool import _cpu

CHANNELS_LAST = torch.channels_last
PLAIN = (Tensor, torch.nn.Parameter)  # types of tensors that nothing traces or batches

# Types of devices, as DLPack numbers them.
ON_CPU, ON_CUDA = 1, 2

# Types of features; boxes may have any of these, or be integers.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Types of features that are pooled to float32.
MAP_INTEGERS = (torch.uint8, torch.int8, torch.uint16, torch.int16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Bridge(Protocol):
    """Passes tensors of one type of device to the engine that computes on them."""

    def engine(self) -> Any:
        """Return the engine: see ``roipool._engines.Engine``."""

    def why_not(self) -> str | None:
        """Return why there is no engine for tensors of this type of device, or None."""

    def array(self, tensor: Tensor) -> Any:
        """Return a tensor's memory as an array of the engine's library."""

    def tensor(self, array: Any) -> Tensor:
        """Return an engine's array as a tensor, without a copy."""

    def on_device_of(self, tensor: Tensor) -> AbstractContextManager[None]:
        """Return a context in which the engine works on the device of a tensor."""


class LimitedEngine:
    """The CPU engine's functions, on at most as many threads as torch's setting."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(_cpu, name)

        def limited(*args: Any, **kwargs: Any) -> Any:
            before = _cpu.limit_threads(torch.get_num_threads())
            try:
                return function(*args, **kwargs)
            finally:
                _cpu.limit_threads(before)

        setattr(self, name, limited)
        return limited


ENGINE = LimitedEngine()


class Host:
    """CPU tensors, as NumPy arrays."""

    def engine(self) -> Any:
        """Return the CPU engine, whose calls use no more threads than torch."""
        return ENGINE

    def why_not(self) -> None:
        """Return None: there is always an engine."""

    @staticmethod
    def array(tensor: Tensor) -> NDArray[Any]:
        """Return the memory of a CPU tensor as a NumPy array; bfloat16 becomes int16."""
        if tensor.requires_grad:
            tensor = tensor.detach()
        tensor = tensor.resolve_neg()  # a view that is to be read with the other sign
        return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy()

    tensor = staticmethod(torch.from_numpy)

    def on_device_of(self, tensor: Tensor) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()


HOST = Host()


def holds_memory(tensor: Tensor) -> bool:
    """Return whether a tensor's storage holds all elements: a program may free or shrink it."""
    try:
        held = tensor.untyped_storage().nbytes()
    except NotImplementedError:  # no storage: the operation itself reports that
        return True
    if held > 0 and tensor.is_contiguous():
        extent = tensor.numel()
    else:
        sizes, strides = tensor.shape, tensor.stride()
        extent = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True)) + 1
        extent = extent if tensor.numel() else 0
    begin = tensor.storage_offset() if extent else 0
    return (begin + extent) * tensor.element_size() <= held


def check_memory(**tensors: Tensor | None) -> None:
    """Check that tensors hold their elements; names are those of the arguments."""
    for name, tensor in tensors.items():
        if tensor is not None and not holds_memory(tensor):
            raise ValueError(
                f"{name} must hold memory, but its storage was freed: it has "
                f"{tensor.untyped_storage().nbytes()} bytes, for a tensor of shape "
                f"{tuple(tensor.shape)}"
            )


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether maps are stored channels last, and not also channels first."""
    if tensor.is_contiguous():
        return False
    if torch._C._are_functorch_transforms_active():
        return _has_strides_of_channels_last(tensor)
    return tensor.is_contiguous(memory_format=CHANNELS_LAST)


def _has_strides_of_channels_last(tensor: Tensor) -> bool:
    """Return the same from strides: within `vmap` a tensor does not tell its memory format."""
    if tensor.dim() != 4:
        return False
    step = 1
    for axis in (1, 3, 2, 0):
        size = tensor.shape[axis]
        if size != 1 and tensor.stride(axis) != step:
            return False
        step *= size
    return True


def are_channels_last(maps: Sequence[Tensor]) -> bool:
    """Return whether maps are stored channels last, as maps of one cell always are."""
    if all(map(Tensor.is_contiguous, maps)):  # as most maps, for the sake of small calls
        return False
    return any(map(is_channels_last, maps)) and all(
        each.is_contiguous(memory_format=CHANNELS_LAST) for each in maps
    )


def as_stored(maps: Tensor, channels_last: bool) -> Tensor:
    """Return a view of (N, C, H, W) maps with their axes in the order of their memory."""
    return maps.permute(0, 2, 3, 1) if channels_last else maps


def empty_maps(shape: Sequence[int], like: Tensor, channels_last: bool) -> Tensor:
    """Return new maps, (N, C, H, W), with the dtype and on the device of `like`.

    Beside integers they are float32.
    """
    dtype = like.dtype
    if dtype in MAP_INTEGERS:
        dtype = torch.float32
    elif not channels_last:
        return like.new_empty(*shape)  # faster than of a tuple
    order = CHANNELS_LAST if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=order)


def map_array(bridge: Bridge, tensor: Tensor, channels_last: bool) -> Any:
    """Return maps in the layout for an engine: (N, C, H, W), or (N, H, W, C) if stored so."""
    if channels_last:
        stored = tensor.contiguous(memory_format=CHANNELS_LAST).permute(0, 2, 3, 1)
    else:
        stored = tensor.contiguous()
    if stored.data_ptr() % stored.element_size():  # of a buffer at an odd address
        stored = stored.clone()
    return bridge.array(stored)
