"""An operator for results that an engine's function fills row by row, such as pasted masks.

Each row of the result depends on the same row of all tensors. So a batch of calls is a call with
more rows, and what the function is needs no operator of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roipool import _cpu
from roipool._masks.request import Pasting
from roipool.torch._memory import Bridge, check_memory, map_array
from roipool.torch._operators import BRIDGES, LIBRARY, kernel

NAME = "fill_rows"
LIBRARY.define(
    f"{NAME}(str function, str request, SymInt[] size, SymInt[] shape, ScalarType dtype,"
    " Tensor[] arrays) -> Tensor"
)


def _compute(
    bridge: Bridge,
    function: str,
    request: str,
    size: Sequence[int],
    shape: Sequence[int],
    dtype: torch.dtype,
    arrays: Sequence[Tensor],
) -> Tensor:
    """Compute the operator."""
    check_memory(**{f"arrays[{number}]": each for number, each in enumerate(arrays)})
    out, is_zero = _unfilled(shape, dtype, arrays[0].device)
    held = [map_array(bridge, each, False) for each in arrays]
    own = Pasting.of_text(request, size)._replace(on_zeros=is_zero)
    getattr(bridge.engine(), function)(*held, own, bridge.array(out))
    return out


def _unfilled(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, bool]:
    """Return a new tensor, and whether it is 0 already; torch would write zeros on a host."""
    if device.type != "cpu":
        return torch.empty(tuple(shape), dtype=dtype, device=device), False
    zeros = _cpu.zeros_array(shape, f"i{dtype.itemsize}")
    return torch.from_numpy(zeros).view(dtype), True


def _without_values(
    function: str,
    request: str,
    size: Sequence[int],
    shape: Sequence[int],
    dtype: torch.dtype,
    arrays: Sequence[Tensor],
) -> Tensor:
    """Return the operator's result without values."""
    return arrays[0].new_empty(tuple(shape), dtype=dtype)


def _batched(
    info: Any,
    in_dims: Sequence[Any],
    function: str,
    request: str,
    size: Sequence[int],
    shape: Sequence[int],
    dtype: torch.dtype,
    arrays: Sequence[Tensor],
) -> tuple[Tensor, int]:
    """Compute a batch of calls as the rows of one."""
    batch = info.batch_size
    rows = []
    for each, axis in zip(arrays, in_dims[-1], strict=True):
        own = each.expand(batch, *each.shape) if axis is None else each.movedim(axis, 0)
        rows.append(own.reshape(batch * own.shape[1], *own.shape[2:]))
    count = shape[0]
    found = OPERATOR(function, request, size, [batch * count, *shape[1:]], dtype, rows)
    return found.reshape(batch, *shape), 0


for _device, _bridge in BRIDGES.items():
    LIBRARY.impl(NAME, kernel(_bridge, NAME, _compute), _device)
torch.library.register_fake(f"roipool::{NAME}", _without_values, lib=LIBRARY)
torch.library.register_vmap(f"roipool::{NAME}", _batched, lib=LIBRARY)
OPERATOR = getattr(torch.ops.roipool, NAME).default


def filled_rows(
    function: str,
    request: Pasting,
    shape: Sequence[int],
    dtype: torch.dtype,
    arrays: Sequence[Tensor],
) -> Tensor:
    """Return a tensor that a function of an engine fills, a row for each row of `arrays`."""
    size, given = list(request.size), list(arrays)
    found: Tensor = OPERATOR(function, request.text(), size, list(shape), dtype, given)
    return found
