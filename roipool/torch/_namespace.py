"""Functions of NumPy's namespace for tensors: those that calls use on arrays of any library.

Arguments are NumPy's; of dtypes, also tensors' own. New tensors lie on the device of
``torch.device``'s context, which a call opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roipool._dtypes import FLOATS_AND_INTEGERS, dtype_name

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (*FLOATS_AND_INTEGERS, "bool", "int32", "int64", "uint32", "uint64")
}


def tensor_dtype(dtype: Any) -> torch.dtype:
    """Return a dtype of NumPy as a tensor's."""
    return dtype if isinstance(dtype, torch.dtype) else DTYPES[dtype_name(np.dtype(dtype))]


def _number(value: Any) -> Any:
    """Return a scalar of NumPy as Python's, whose type does not widen a tensor's."""
    return value.item() if isinstance(value, np.generic) else value


abs = torch.abs  # noqa: A001 - NumPy's name
floor = torch.floor
isfinite = torch.isfinite
log = torch.log
log2 = torch.log2
rint = torch.round
sqrt = torch.sqrt
trunc = torch.trunc


def where(condition: Tensor, first: Any, second: Any) -> Tensor:
    """Return `numpy.where`."""
    first, second = _number(first), _number(second)
    if not isinstance(first, Tensor) and isinstance(second, Tensor):
        first = torch.full((), first, dtype=second.dtype, device=second.device)
    if not isinstance(second, Tensor) and isinstance(first, Tensor):
        second = torch.full((), second, dtype=first.dtype, device=first.device)
    return torch.where(condition, first, second)


def clip(values: Tensor, least: Any, most: Any) -> Tensor:
    """Return `numpy.clip`."""
    return torch.clamp(values, _number(least), _number(most))


def zeros(shape: Any, dtype: Any = torch.float64) -> Tensor:
    """Return `numpy.zeros`."""
    return torch.zeros(shape, dtype=tensor_dtype(dtype))


def arange(count: int, dtype: Any = torch.int64) -> Tensor:
    """Return `numpy.arange`."""
    return torch.arange(count, dtype=tensor_dtype(dtype))


def full_like(values: Tensor, filling: Any) -> Tensor:
    """Return `numpy.full_like`."""
    return torch.full_like(values, _number(filling))


def cumsum(values: Tensor) -> Tensor:
    """Return `numpy.cumsum` of one axis."""
    return torch.cumsum(values, 0)


def searchsorted(ends: Tensor, values: Tensor, side: str = "left") -> Tensor:
    """Return `numpy.searchsorted`."""
    return torch.searchsorted(ends, values, side=side)


def argsort(values: Tensor, kind: str = "stable") -> Tensor:
    """Return `numpy.argsort` of one axis, which is stable."""
    return torch.argsort(values, stable=True)


def bincount(values: Tensor, minlength: int = 0) -> Tensor:
    """Return `numpy.bincount`."""
    return torch.bincount(values, minlength=minlength)


def concatenate(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return `numpy.concatenate`; autocast would refuse some half types."""
    first, *others = parts
    kind = first.device.type
    if not others:
        return first
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return torch.cat(list(parts), axis)
    with torch.autocast(kind, enabled=False):
        return torch.cat(list(parts), axis)


def stack(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return `numpy.stack`."""
    return torch.stack(list(parts), axis)


def take_along_axis(values: Tensor, places: Tensor, axis: int) -> Tensor:
    """Return `numpy.take_along_axis`, which broadcasts the axes that `places` lack."""
    sizes = list(values.shape)
    sizes[axis] = places.shape[axis]
    return torch.gather(values, axis, places.expand(*sizes))


def ascontiguousarray(values: Tensor) -> Tensor:
    """Return a tensor in C order."""
    return values.contiguous()


def multiply(first: Tensor, second: Tensor, out: None = None) -> Tensor:
    """Return `numpy.multiply`."""
    return first * second
