"""Calls on plain CPU tensors: NumPy's calls on their memory.

A tensor that nothing differentiates, traces or batches is an array, and so are the results of a
call on such tensors. Its checks, bits and kept options (``roipool._kept``) are those of arrays.
Where NumPy has no such array, or refuses the call, tensors are computed as tensors: errors speak of
those.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import _C, Tensor, get_num_threads, is_grad_enabled
from torch.autograd import forward_ad
from torch.nn import Parameter

from roipool import _cpu
from roipool._arrays import THREAD
from roipool._cpu import KeptCalls
from roipool._kept import compute_and_keep

# Types of arguments that are no arrays and hold none.
_OPTIONS = frozenset({type(None), bool, int, float, str})
# Types that NumPy has, too.
_DTYPES = frozenset(
    {
        torch.float16,
        torch.float32,
        torch.float64,
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    }
)


class NotPlainError(Exception):
    """An argument is not, or does not only hold, plain CPU tensors and options."""


# Calls with these errors are computed as tensors: tensors are no such arrays (torch's RuntimeError,
# too), or NumPy refuses the call.
REFUSALS = (NotPlainError, OverflowError, RuntimeError, TypeError, ValueError)


def is_watched() -> bool:
    """Return whether a call is traced, batched, or differentiated otherwise than by autograd."""
    return bool(
        _C._len_torch_dispatch_stack()
        or _C._is_tracing()
        or _C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def result_on_host(
    function: Callable[..., Any], kept: KeptCalls, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the result of a public function, or None if tensors are to be computed as such."""
    if torch.autograd._profiler_enabled() or kwargs.get("out") is not None:
        return None  # a profile shows operators; an `out` is an error of tensors
    try:
        own = tuple([as_array(each) for each in args])
        named = {name: as_array(each) for name, each in kwargs.items()} if kwargs else kwargs
        return _as_tensor(on_torch_threads(_computed, function, kept, own, named))
    except REFUSALS:
        return None


def _computed(
    function: Callable[..., Any], kept: KeptCalls, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    result = kept.result(args, kwargs)
    return compute_and_keep(function, kept, args, kwargs)[0] if result is None else result


def on_torch_threads(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function that computes calls on the memory of tensors."""
    before, THREAD.takes_numbers = _cpu.limit_threads(get_num_threads()), False
    try:
        return function(*args)
    finally:
        _cpu.limit_threads(before)
        THREAD.takes_numbers = True


def as_array(value: Any) -> Any:
    """Return an argument with the memory of tensors as arrays."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        if value.requires_grad:
            if is_grad_enabled():
                raise NotPlainError
            value = value.detach()
        if value.dtype not in _DTYPES or not value.is_contiguous():
            raise NotPlainError
        array = value.numpy()  # an error for other devices and layouts, and for negated views
        end = value.storage_offset() * array.itemsize + array.nbytes
        if end > value.untyped_storage().nbytes() or not array.ndim:
            raise NotPlainError  # freed memory, or a number, which is no option
        return array
    if kind in _OPTIONS:
        return value
    if kind is tuple or kind is list or kind is torch.Size:
        if _OPTIONS.issuperset(map(type, value)):
            return tuple(value) if kind is torch.Size else value
        parts = [as_array(each) for each in value]
        return parts if kind is list else tuple(parts)
    if kind is dict or kind is OrderedDict:
        return kind((name, as_array(each)) for name, each in value.items())
    raise NotPlainError


def _as_tensor(result: Any) -> Any:
    """Return a result with arrays as tensors of their memory."""
    kind = type(result)
    if kind is np.ndarray:
        return torch.from_numpy(result)
    if kind is tuple or kind is list:
        return kind([_as_tensor(each) for each in result])
    if kind is dict:
        return {name: _as_tensor(each) for name, each in result.items()}
    if kind in _OPTIONS or kind is bytes:
        return result
    raise NotPlainError
