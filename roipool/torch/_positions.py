"""Where the samples of an argmax lie, and the argmax of samples at positions.

Both are operators without derivatives: positions are as whole as the argmax that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from roipool._boxes import Regions
from roipool._layout import Shape4
from roipool._request import Pooling
from roipool.torch._families import MAXIMUM, PLACING, pooling_of
from roipool.torch._memory import Bridge
from roipool.torch._operators import BRIDGES, LIBRARY, kernel

_OPTIONS = ", ".join(f"{kind} {name}" for name, kind in PLACING.items())
_GIVEN = f"Tensor boxes, Tensor indices, SymInt[4] input_shape, SymInt[2] output_size, {_OPTIONS}"


def argmax_positions(
    argmax: Tensor, regions: Regions, pooling: Pooling, input_shape: Shape4
) -> tuple[Tensor, Tensor]:
    """Return the positions y and x, in map cells, of samples given by index; NCHW."""
    y, x = torch.ops.roipool.argmax_positions(argmax, *_at(regions, pooling, input_shape))
    return y, x


def argmax_at(
    y: Tensor, x: Tensor, regions: Regions, pooling: Pooling, input_shape: Shape4
) -> Tensor:
    """Return the indices of the samples at positions, -1 where there is none; NCHW."""
    found: Tensor = torch.ops.roipool.argmax_at(y, x, *_at(regions, pooling, input_shape))
    return found


def _at(regions: Regions, pooling: Pooling, shape: Sequence[int]) -> tuple[Any, ...]:
    settings = MAXIMUM.settings_of(pooling)
    boxes: Any = regions.boxes
    indices: Any = regions.batch_indices
    return boxes.detach(), indices.detach(), list(shape), pooling.output_size, *settings.placing


def _read(bridge: Bridge, args: Sequence[Any]) -> tuple[Regions, Pooling, tuple[int, ...]]:
    """Return the arguments of an engine from those of an operator after its arrays."""
    boxes, indices, shape, size, *placing = args
    values = tuple(tuple(each) if isinstance(each, list) else each for each in placing)
    pooling = pooling_of(MAXIMUM, values, tuple(size))
    table = bridge.array(boxes)
    regions = MAXIMUM.regions(table, bridge.array(indices), shape[0], table.dtype)
    return regions, pooling, tuple(shape)


def _positions(bridge: Bridge, argmax: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    indices = bridge.array(argmax.contiguous())
    y, x = bridge.engine().argmax_positions(indices, *_read(bridge, args))
    return bridge.tensor(y), bridge.tensor(x)


def _indices(bridge: Bridge, y: Tensor, x: Tensor, *args: Any) -> Tensor:
    real = args[0].dtype
    places = [bridge.array(each.detach().to(real).contiguous()) for each in (y, x)]
    return bridge.tensor(bridge.engine().argmax_at(*places, *_read(bridge, args)))


def _like_positions(argmax: Tensor, boxes: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    return argmax.new_empty(argmax.shape, dtype=boxes.dtype), argmax.new_empty(
        argmax.shape, dtype=boxes.dtype
    )


def _like_indices(y: Tensor, *args: Any) -> Tensor:
    return y.new_empty(y.shape, dtype=torch.int64)


def _in_rows(name: str) -> Callable[..., Any]:
    """Return the rule for a batch of calls: one call whose boxes are those of all."""

    def batched(info: Any, in_dims: Any, *args: Any) -> Any:
        size, folded = info.batch_size, list(args)
        for place, (value, dim) in enumerate(zip(args, in_dims, strict=True)):
            if isinstance(value, Tensor):
                moved = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
                folded[place] = moved.flatten(0, 1)
        results = getattr(torch.ops.roipool, name)(*folded)
        if isinstance(results, Tensor):
            return results.unflatten(0, (size, -1)), 0
        return tuple(each.unflatten(0, (size, -1)) for each in results), (0, 0)

    return batched


def _register(
    name: str, schema: str, compute: Callable[..., Any], like: Callable[..., Any]
) -> None:
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for device, bridge in BRIDGES.items():
        LIBRARY.impl(name, kernel(bridge, name, compute), device)
    torch.library.register_fake(f"roipool::{name}", like, lib=LIBRARY)
    torch.library.register_vmap(f"roipool::{name}", _in_rows(name), lib=LIBRARY)


_register(
    "argmax_positions",
    f"argmax_positions(Tensor argmax, {_GIVEN}) -> (Tensor, Tensor)",
    _positions,
    _like_positions,
)
_register(
    "argmax_at", f"argmax_at(Tensor y, Tensor x, {_GIVEN}) -> Tensor", _indices, _like_indices
)
