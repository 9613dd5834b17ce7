"""vmap: a batch of calls is one call, its batch folded into channels, or into boxes and images.

A rule takes what torch gives it, the sizes and where each argument has its batch dimension, and
returns results with theirs. Boxes without a batch share their plan: the batch becomes channels.
Otherwise it becomes boxes, and images where the maps have one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Call = Callable[..., Any]
Rule = Callable[..., Any]


def rule(operator: str, call: Call) -> Rule:
    """Return the rule for an operator, which `call` computes without this batch."""
    folds: dict[str, Callable[..., Any]] = {
        "average": _fold_forward,
        "maximum": _fold_forward,
        "average_backward": _fold_backward,
        "maximum_backward": _fold_backward_max,
        "average_backward_boxes": _fold_backward_boxes,
        "average_levels": _fold_levels_forward,
        "average_levels_backward": _fold_levels_backward,
        "average_levels_backward_boxes": _fold_levels_backward_boxes,
    }
    fold = folds[operator]

    def batched(info: Any, in_dims: Any, *args: Any) -> Any:
        # Their own batch dimension first; without calls one of zeros, which gradients pass.
        size, moved = max(info.batch_size, 1), list(args)
        for place, dim in enumerate(in_dims):
            if isinstance(args[place], Tensor) and dim is not None:
                first = args[place].movedim(dim, 0)
                moved[place] = first if len(first) else first.sum(0, True, dtype=first.dtype)
        found = fold(call, size, [dim is not None for dim in in_dims], *moved)
        return found if size == info.batch_size else _of_no_calls(*found)

    return batched


def _of_no_calls(results: Any, dims: Any) -> Any:
    """Return results without calls, of those of one call."""
    if isinstance(results, tuple):
        both = zip(results, dims, strict=True)
        return tuple(value.narrow(dim, 0, 0) for value, dim in both), dims
    return results.narrow(dims, 0, 0), dims


# ---- Folding and unfolding one argument


def to_channels(maps: Tensor, batch: int, has_batch: bool) -> Tensor:
    """Return (N, B * C, ...) of (B, N, C, ...), or of (N, C, ...) for every one of the batch."""
    maps = maps if has_batch else maps.expand(batch, *maps.shape)
    return maps.transpose(0, 1).flatten(1, 2)


def to_rows(table: Tensor, batch: int, has_batch: bool) -> Tensor:
    """Return (B * K, ...) of (B, K, ...), or of (K, ...) for every one of the batch."""
    table = table if has_batch else table.expand(batch, *table.shape)
    return table.flatten(0, 1)


def from_channels(value: Tensor, batch: int) -> Tensor:
    """Return (N, B, C, ...) of (N, B * C, ...)."""
    return value.unflatten(1, (batch, value.shape[1] // batch))


def from_rows(value: Tensor, batch: int) -> Tensor:
    """Return (B, K, ...) of (B * K, ...)."""
    return value.unflatten(0, (batch, value.shape[0] // batch))


def to_boxes(
    boxes: Tensor, indices: Tensor | None, batch: int, has_batch: list[bool], columns: int,
    images: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return boxes and batch indices of the whole batch.

    `images` is how many of the folded maps each call has; 0 where all share them.
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
    """Raise for a batch index that names no image, where values are known: it is replaced next."""
    is_known = numbers.is_cpu and type(numbers) is Tensor and torch._C._has_storage(numbers)
    if is_known and not bool(is_image.all()):
        call, row = (~is_image).nonzero()[0].tolist()
        raise ValueError(
            f"of call {call} of the batch, the batch index of box {row} is "
            f"{numbers[call, row].item()}, but batch indices must be whole numbers from 0 up to, "
            f"not including, {images}, the number of images"
        )


# ---- Rules. Each gets a batch's size, which arguments have one, and the arguments


def _results(values: Any, batch: int, unfold: Callable[[Tensor, int], Tensor], dim: int) -> Any:
    if isinstance(values, tuple):
        return tuple(unfold(value, batch) for value in values), (dim,) * len(values)
    return unfold(values, batch), dim


def _fold_forward(
    call: Call, batch: int, has_batch: list[bool], features: Tensor, boxes: Tensor,
    indices: Tensor | None, request: Any,
) -> Any:  # fmt: skip
    if not any(has_batch[1:3]):
        folded = to_channels(features, batch, has_batch[0])
        return _results(call(folded, boxes, indices, request), batch, from_channels, 1)
    images = features.shape[1] if has_batch[0] else 0
    maps = features.flatten(0, 1) if has_batch[0] else features
    rows = to_boxes(boxes, indices, batch, has_batch[1:3], request.family.op.columns, images)
    return _results(call(maps, *rows, request), batch, from_rows, 0)


def _fold_backward(
    call: Call, batch: int, has_batch: list[bool], grad: Tensor, boxes: Tensor,
    indices: Tensor | None, shape: Any, channels_last: bool, request: Any,
) -> Any:  # fmt: skip
    return _fold_gradients(
        call, batch, has_batch[:1], has_batch[1:3], (grad,), boxes, indices, shape, channels_last,
        request,
    )  # fmt: skip


def _fold_backward_max(
    call: Call, batch: int, has_batch: list[bool], grad: Tensor, argmax: Tensor, boxes: Tensor,
    indices: Tensor | None, shape: Any, channels_last: bool, request: Any,
) -> Any:  # fmt: skip
    return _fold_gradients(
        call, batch, has_batch[:2], has_batch[2:4], (grad, argmax), boxes, indices, shape,
        channels_last, request,
    )  # fmt: skip


def _fold_gradients(
    call: Call, batch: int, have_batch: list[bool], boxes_have_batch: list[bool],
    pooled: tuple[Tensor, ...], boxes: Tensor, indices: Tensor | None, shape: Any,
    channels_last: bool, request: Any,
) -> Any:  # fmt: skip
    images, channels, height, width = shape
    both = list(zip(pooled, have_batch, strict=True))
    if not any(boxes_have_batch):
        folded = [to_channels(value, batch, has) for value, has in both]
        shape = (images, batch * channels, height, width)
        result = call(*folded, boxes, indices, shape, channels_last, request)
        return _results(result, batch, from_channels, 1)
    columns = request.family.op.columns
    rows = to_boxes(boxes, indices, batch, boxes_have_batch, columns, images)
    folded = [to_rows(value, batch, has) for value, has in both]
    shape = (batch * images, channels, height, width)
    return _results(call(*folded, *rows, shape, channels_last, request), batch, from_rows, 0)


def _fold_backward_boxes(
    call: Call, batch: int, has_batch: list[bool], grad: Tensor, features: Tensor, boxes: Tensor,
    indices: Tensor | None, request: Any,
) -> Any:  # fmt: skip
    columns = request.family.op.columns
    images = features.shape[1] if has_batch[1] else 0
    maps = features.flatten(0, 1) if has_batch[1] else features
    has_index = boxes.shape[-1] > columns
    rows = to_boxes(boxes, indices, batch, has_batch[2:4], columns, images)
    slopes = call(to_rows(grad, batch, has_batch[0]), maps, *rows, request)
    if has_index:
        slopes = torch.nn.functional.pad(slopes, (1, 0))
    return from_rows(slopes, batch), 0


# ---- Several maps, and for each box which one


def to_images(maps: Sequence[Tensor], batch: int, have_batch: Sequence[bool]) -> list[Tensor]:
    """Return (B * N, ...) of the maps of a pyramid; (N, ...) where none has a batch."""
    if not any(have_batch):
        return [*maps]
    return [to_rows(each, batch, has) for each, has in zip(maps, have_batch, strict=True)]


def _fold_levels_forward(call: Call, batch: int, has_batch: list[bool], *args: Any) -> Any:
    *maps, boxes, indices, levels, request = args
    maps_have, at_have = has_batch[:-4], has_batch[-4:-1]
    if not any(at_have):
        both = zip(maps, maps_have, strict=True)
        folded = [to_channels(each, batch, has) for each, has in both]
        return _results(call(*folded, boxes, indices, levels, request), batch, from_channels, 1)
    images = maps[maps_have.index(True)].shape[1] if any(maps_have) else 0
    rows = to_boxes(boxes, indices, batch, at_have[:2], request.family.op.columns, images)
    own = to_rows(levels, batch, at_have[2])
    folded = to_images(maps, batch, maps_have)
    return _results(call(*folded, *rows, own, request), batch, from_rows, 0)


def _fold_levels_backward(
    call: Call, batch: int, has_batch: list[bool], grad: Tensor, boxes: Tensor,
    indices: Tensor | None, levels: Tensor, shapes: Sequence[int], channels_last: bool,
    request: Any,
) -> Any:  # fmt: skip
    axis = 0 if any(has_batch[1:4]) else 1
    folded = [size * batch if at % 4 == axis else size for at, size in enumerate(shapes)]
    if axis == 1:
        gradient = to_channels(grad, batch, has_batch[0])
        result = call(gradient, boxes, indices, levels, folded, channels_last, request)
        return _results(tuple(result), batch, from_channels, 1)
    columns = request.family.op.columns
    rows = to_boxes(boxes, indices, batch, has_batch[1:3], columns, shapes[0])
    own = to_rows(levels, batch, has_batch[3])
    gradient = to_rows(grad, batch, has_batch[0])
    result = call(gradient, *rows, own, folded, channels_last, request)
    return _results(tuple(result), batch, from_rows, 0)


def _fold_levels_backward_boxes(call: Call, batch: int, has_batch: list[bool], *args: Any) -> Any:
    grad, *maps, boxes, indices, levels, request = args
    maps_have, at_have = has_batch[1:-4], has_batch[-4:-1]
    columns = request.family.op.columns
    images = maps[maps_have.index(True)].shape[1] if any(maps_have) else 0
    has_index = boxes.shape[-1] > columns
    rows = to_boxes(boxes, indices, batch, at_have[:2], columns, images)
    own = to_rows(levels, batch, at_have[2])
    folded = to_images(maps, batch, maps_have)
    slopes = call(to_rows(grad, batch, has_batch[0]), *folded, *rows, own, request)
    if has_index:
        slopes = torch.nn.functional.pad(slopes, (1, 0))
    return from_rows(slopes, batch), 0
