"""Tensors of the same values in various memory formats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from roipool.systems.case import Array, dtypes


def to_tensor(array: Array) -> Tensor:
    """Return a copy of a NumPy array as a tensor."""
    native = np.array(array, array.dtype.newbyteorder("="), order="C")
    if native.dtype.name == "bfloat16":
        return torch.from_numpy(native.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(native)


def to_numpy(tensor: Tensor) -> Array:
    """Return a tensor's values."""
    plain = tensor.detach().as_subclass(Tensor).resolve_neg().contiguous()
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(dtypes()["bfloat16"])
    return plain.numpy()


# ---- Memory formats of the same values


def _strided(tensor: Tensor) -> Tensor:
    wide = tensor.new_zeros((*tensor.shape, 2))
    wide[..., 1] = tensor
    return wide[..., 1]


def _at_an_offset(tensor: Tensor) -> Tensor:
    longer = tensor.new_zeros(tensor.numel() + 3)
    part = longer[3:].view(tensor.shape)
    part.copy_(tensor)
    return part


def _turned(tensor: Tensor) -> Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _channels_last(tensor: Tensor) -> Tensor:
    of_volumes = tensor.dim() == 5
    form = torch.channels_last_3d if of_volumes else torch.channels_last
    return tensor.contiguous(memory_format=form)


def _cut(tensor: Tensor) -> Tensor:
    wide = tensor.new_zeros([size + 1 for size in tensor.shape])
    part = wide[tuple(slice(1, None) for _ in tensor.shape)]
    part.copy_(tensor)
    return part


def _negative(tensor: Tensor) -> Tensor:
    return torch._neg_view(-tensor)


def _same(tensor: Tensor) -> Tensor:
    return tensor


MEMORY: tuple[Callable[[Tensor], Tensor], ...] = (
    _same,
    _strided,
    _at_an_offset,
    _turned,
    _channels_last,
    _cut,
    _negative,
)


def stored(tensor: Tensor, rng: np.random.Generator) -> Tensor:
    """Return a tensor of the same values in a random memory format."""
    way = MEMORY[int(rng.integers(len(MEMORY)))]
    if way is _channels_last and tensor.dim() not in (4, 5):
        way = _cut
    if way is _turned and tensor.dim() < 2:
        way = _strided
    if way is _negative and not tensor.is_floating_point():
        way = _at_an_offset
    return way(tensor)
