"""vmap: a batch of calls is one call, its batch folded into channels, or into boxes and images.

A rule takes what torch gives it, the sizes and where each argument has its batch dimension, and
returns results with theirs. Boxes without a batch share their plan: the batch becomes channels.
Otherwise, and where a gradient sums over channels, it becomes boxes, and images where the maps have
one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from roipool.torch._families import VERBS, Family, Settings

Call = Callable[..., Any]
Rule = Callable[..., Any]


def rule(verb: str, call: Call) -> Rule:
    """Return the rule for a verb, which `call` computes without this batch."""

    def batched(info: Any, in_dims: Any, settings: Settings, *tensors: Any) -> Any:
        # Their own batch dimension first. An empty batch is computed as one call of zeros, so that
        # autograd sees it.
        size, dims, moved = max(info.batch_size, 1), in_dims[1:], list(tensors)
        for place, dim in enumerate(dims):
            if isinstance(tensors[place], Tensor) and dim is not None:
                first = tensors[place].movedim(dim, 0)
                moved[place] = first if len(first) else first.sum(0, True, dtype=first.dtype)
        has_batch = [dim is not None for dim in dims]
        shares_boxes = not any(has_batch[:3]) and VERBS[verb].result != "boxes"
        fold = _fold_into_channels if shares_boxes else _fold_into_rows
        values, dim = fold(verb, call, size, has_batch, settings, *moved)
        if size != info.batch_size:
            values = _each(values, lambda value: value.narrow(dim, 0, 0))
        return values, (dim,) * len(values) if isinstance(values, tuple) else dim

    return batched


def _each(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return tuple(map(change, values)) if isinstance(values, tuple) else change(values)


# ---- Folding and unfolding one argument


def to_channels(maps: Tensor, batch: int, has_batch: bool) -> Tensor:
    """Fold (B, N, C, ...), or (N, C, ...) shared by the batch, into (N, B * C, ...)."""
    maps = maps if has_batch else maps.expand(batch, *maps.shape)
    return maps.transpose(0, 1).flatten(1, 2)


def to_rows(table: Tensor, batch: int, has_batch: bool) -> Tensor:
    """Fold (B, K, ...), or (K, ...) shared by the batch, into (B * K, ...)."""
    table = table if has_batch else table.expand(batch, *table.shape)
    return table.flatten(0, 1)


def to_boxes(
    boxes: Tensor,
    indices: Tensor | None,
    batch: int,
    has_batch: list[bool],
    columns: int,
    images: int,
) -> tuple[Tensor, Tensor]:
    """Return boxes and batch indices of the whole batch.

    `images` is the number of folded maps per call; 0 if all calls share the maps.
    """
    if indices is None:
        has_batch = [has_batch[0], has_batch[0]]
        indices, boxes = boxes[..., 0], boxes[..., boxes.shape[-1] - columns :]
    rows = to_rows(boxes, batch, has_batch[0])
    numbers = indices if has_batch[1] else indices.expand(batch, *indices.shape)
    if images:
        # A wrong index must not become an image of another call.
        is_image = (numbers >= 0) & (numbers < images) & (numbers == numbers.floor())
        refuse_wrong(numbers, is_image, images)
        first = torch.arange(batch, device=numbers.device)[:, None] * images
        numbers = torch.where(is_image, numbers.nan_to_num().long() + first, -1)
    return rows, numbers.flatten(0, 1)


def refuse_wrong(numbers: Tensor, is_image: Tensor, images: int) -> None:
    """Raise an error for a batch index that names no image, if its value is known."""
    is_known = numbers.is_cpu and type(numbers) is Tensor and torch._C._has_storage(numbers)
    if is_known and not bool(is_image.all()):
        call, row = (~is_image).nonzero()[0].tolist()
        raise ValueError(
            f"of call {call} of the batch, the batch index of box {row} is "
            f"{numbers[call, row].item()}, but batch indices must be whole numbers from 0 up to, "
            f"not including, {images}, the number of images"
        )


# ---- Folding a call. Each returns the results, and where they have their batch dimension


def _fold_into_channels(
    verb: str,
    call: Call,
    batch: int,
    has_batch: list[bool],
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *arrays: Tensor,
) -> tuple[Any, int]:
    shapes = tuple([(n, batch * c, h, w) for n, c, h, w in settings.shapes])
    both = zip(arrays, has_batch[3:], strict=True)
    folded = [to_channels(each, batch, has) for each, has in both]
    values = call(settings._replace(shapes=shapes), boxes, indices, levels, *folded)
    return _each(values, lambda value: value.unflatten(1, (batch, value.shape[1] // batch))), 1


def _fold_into_rows(
    verb: str,
    call: Call,
    batch: int,
    has_batch: list[bool],
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *arrays: Tensor,
) -> tuple[Any, int]:
    names, result = VERBS[verb]
    singles = len(names) - ("features" in names)
    images = settings.shapes[0][0] if result == "features" else 0
    both = list(zip(arrays, has_batch[3:], strict=True))
    folded = [to_rows(each, batch, has) for each, has in both[:singles]]
    maps, maps_have_batch = arrays[singles:], has_batch[3 + singles :]
    if any(maps_have_batch):
        images = maps[maps_have_batch.index(True)].shape[1]
        maps = tuple([to_rows(each, batch, has) for each, has in both[singles:]])
    columns = boxes.shape[-1] - (indices is None)
    rows = to_boxes(boxes, indices, batch, has_batch[:2], columns, images)
    own = None if levels is None else to_rows(levels, batch, has_batch[2])
    shapes = tuple([(batch * n, c, h, w) for n, c, h, w in settings.shapes])
    values = call(settings._replace(shapes=shapes), *rows, own, *folded, *maps)
    if result == "boxes" and boxes.shape[-1] > columns:
        values = torch.nn.functional.pad(values, (1, 0))
    return _each(values, lambda value: value.unflatten(0, (batch, value.shape[0] // batch))), 0


# ---- Batches of autograd itself (`is_grads_batched`): no operator may have a list of maps there


def one_by_one(family: Family, verb: str) -> Call:
    """Return a pyramid's operator, composed of the operators of its single maps."""
    names, result = VERBS[verb]

    def computed(*args: Any) -> Any:
        settings, boxes, indices, levels, *arrays = family.from_operator(verb, args)
        maps = range(len(settings.scales))
        parts, every = [], [torch.nonzero(levels == level)[:, 0] for level in maps]
        for level, rows in enumerate(every):
            own = settings.of_one_map(level)
            single = own.family
            grads = [each.index_select(0, rows) for each in arrays[: names.count("grad_output")]]
            own_map = arrays[len(grads) :][level : level + 1]
            at = _rows_of(rows, boxes, indices)
            given = single.to_operator(verb, own, *at, None, *grads, *own_map)
            parts.append(single.overloads[verb](*given))
        if result == "features":
            return parts
        return torch.cat(parts).index_select(0, torch.argsort(torch.cat(every)))

    return computed


def _rows_of(rows: Tensor, *tables: Tensor | None) -> Sequence[Tensor | None]:
    return [None if table is None else table.index_select(0, rows) for table in tables]
