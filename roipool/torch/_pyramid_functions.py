"""Derivatives of the operations that pool each box from one of several maps.

As in ``_functions``; a function takes the maps one by one, because autograd differentiates no list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from roipool.torch import _batching
from roipool.torch._functions import (
    FUNCTIONS,
    GROUPINGS,
    BoxGradient,
    Differentiable,
    Request,
    call,
    moves_with_boxes,
    refusal,
)
from roipool.torch._operators import FAMILIES, LIBRARY, Settings
from roipool.torch._pyramids import (
    PYRAMID_FAMILIES,
    PyramidFamily,
    are_channels_last,
    four_by_four,
)

AFTER_MAPS = 4  # boxes, indices, levels, request


class AverageLevels(Differentiable):
    """An average of maps, boxes, indices, levels."""

    operator = "average_levels"
    leading = 4

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *maps, boxes, indices, levels, request = inputs
        family = request.family
        ctx.request = Request(family, family.placing_of(request.settings))
        ctx.size = tuple(request.settings[0])
        ctx.shapes = [size for each in maps for size in each.shape]
        ctx.last = are_channels_last(maps)
        by_boxes = needs(ctx)[len(maps)] and moves_with_boxes(ctx.request)
        Differentiable.save(ctx, boxes, indices, levels, *(maps if by_boxes else ()))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        boxes, indices, levels, *maps = ctx.saved_tensors
        by_maps: Sequence[Any] = (None,) * (len(ctx.shapes) // 4)
        by_boxes = None
        at = (boxes, indices, levels)
        if grad is not None and any(needs(ctx)[: len(by_maps)]):
            form = (ctx.shapes, ctx.last)
            by_maps = call("average_levels_backward", grad, *at, *form, ctx.request)
        if grad is not None and maps:
            by_boxes = call("average_levels_backward_boxes", grad, *maps, *at, ctx.request)
        return (*by_maps, by_boxes, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        *changes, box_change, _, _, _ = tangents
        Differentiable.check_box_tangent(ctx, box_change)
        if all(each is None for each in changes):
            return None
        at = ctx.saved_tensors[:3]
        maps = with_zeros(changes, ctx.shapes)
        return call("average_levels", *maps, *at, forward_request(ctx.request, ctx.size))


class AverageLevelsBackward(Differentiable):
    """Backward of `AverageLevels` with respect to the maps.

    Operands: grad_output, boxes, indices, levels, input_shapes, channels_last.
    """

    operator = "average_levels_backward"
    leading = 6

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad, boxes, indices, levels, ctx.shapes, ctx.last, ctx.request = inputs
        ctx.size = tuple(grad.shape[2:])
        by_boxes = needs(ctx)[1] and moves_with_boxes(ctx.request)
        Differentiable.save(ctx, grad if by_boxes else None, boxes, indices, levels)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        grad, *at = ctx.saved_tensors
        by_grad = by_boxes = None
        if any(each is not None for each in tangents):
            maps = with_zeros(tangents, ctx.shapes)
            if needs(ctx)[0]:
                request = forward_request(ctx.request, ctx.size)
                by_grad = call("average_levels", *maps, *at, request)
            if grad is not None:
                by_boxes = call("average_levels_backward_boxes", grad, *maps, *at, ctx.request)
        return by_grad, by_boxes, *(None,) * 5

    @staticmethod
    def jvp(ctx: Any, tangent: Any, box_change: Any, *_: Any) -> Any:
        Differentiable.check_box_tangent(ctx, box_change)
        if tangent is None:
            return (None,) * (len(ctx.shapes) // 4)
        form = (ctx.shapes, ctx.last)
        at = ctx.saved_tensors[1:]
        return call("average_levels_backward", tangent, *at, *form, ctx.request)


class BoxGradientOfLevels(BoxGradient):
    """Backward of `AverageLevels` with respect to the boxes.

    Operands: grad_output, maps, boxes, indices, levels.
    """

    operator = "average_levels_backward_boxes"
    leading = 5

    @staticmethod
    def jvp(ctx: Any, grad_change: Any, *changes: Any) -> Any:
        *map_changes, box_change, _, _, _ = changes
        if box_change is not None:
            raise refusal("second derivatives through boxes", ctx.request.family)
        grad, *maps, boxes, indices, levels = ctx.saved_tensors
        parts = []
        if grad_change is not None:
            parts.append((grad_change, maps))
        if any(each is not None for each in map_changes):
            shapes = [size for each in maps for size in each.shape]
            parts.append((grad, with_zeros(map_changes, shapes)))
        slopes = [
            call("average_levels_backward_boxes", one, *all_maps, boxes, indices, levels,
                 ctx.request)
            for one, all_maps in parts
        ]  # fmt: skip
        return None if not slopes else sum(slopes[1:], slopes[0])


def needs(ctx: Any) -> list[bool]:
    """Return flags of the arguments that require a gradient, flattened where they are lists."""
    found: list[bool] = pytree.tree_leaves(ctx.needs_input_grad)
    return found


def with_zeros(maps: Sequence[Tensor | None], shapes: Sequence[int]) -> list[Tensor]:
    """Return maps of these shapes, zeros for None; one at least is there."""
    like = next(each for each in maps if each is not None)
    return [
        like.new_zeros(shape) if each is None else each
        for each, shape in zip(maps, four_by_four(shapes), strict=True)
    ]


def forward_request(request: Request, size: tuple[int, int]) -> Request:
    """Return the request of a forward, given that of a gradient."""
    return Request(request.family, (size, *request.settings))


# ---- What operators take in lists


def _maps_first(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (list(args[:-AFTER_MAPS]), *args[-AFTER_MAPS:-1])


def _grad_first(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0], list(args[1:-AFTER_MAPS]), *args[-AFTER_MAPS:-1])


PYRAMID_FUNCTIONS: dict[str, type[Differentiable]] = {
    function.operator: function
    for function in (AverageLevels, AverageLevelsBackward, BoxGradientOfLevels)
}
FUNCTIONS.update(PYRAMID_FUNCTIONS)
GROUPINGS.update(
    average_levels=_maps_first,
    average_levels_backward=lambda args: args[:-1],
    average_levels_backward_boxes=_grad_first,
)

# Where an operator's list of maps is among its arguments.
LIST_AT = {"average_levels": 0, "average_levels_backward_boxes": 1}


def _flat(operator: str, args: Sequence[Any]) -> list[Any]:
    """Return an operator's arguments with the maps one by one."""
    at = LIST_AT.get(operator)
    return [*args] if at is None else [*args[:at], *args[at], *args[at + 1 :]]


def _register_formulas(family: PyramidFamily, function: type[Differentiable]) -> None:
    operator, leading = function.operator, function.leading
    overload = family.overloads[operator]
    name = overload.name().partition(".")[0]
    settings = len(overload._schema.arguments) - leading
    at = LIST_AT.get(operator)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        request = Request(family, tuple(inputs[leading:]))
        function.setup_context(ctx, (*_flat(operator, inputs[:leading]), request), output)

    def backward(ctx: Any, *grads: Any) -> Any:
        tangents = grads[0] if isinstance(grads[0], (list, tuple)) else grads
        results = [*function.backward(ctx, *tangents)[:-1]]
        if at is not None:
            maps = len(results) - (leading - 1)
            results[at : at + maps] = [results[at : at + maps]]
        return (*results, *(None,) * settings)

    torch.library.register_autograd(name, backward, setup_context=setup_context, lib=LIBRARY)

    def without_batch(*args: Any) -> Any:
        return overload(*GROUPINGS[operator](args), *args[-1].settings)

    fold = _batching.rule(operator, without_batch)

    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        request = Request(family, _settings(args[leading:]))
        dims = _flat(operator, [_dims(dim, arg) for dim, arg in zip(in_dims, args, strict=True)]
                     [:leading])  # fmt: skip
        results, out_dims = fold(info, (*dims, None), *_flat(operator, args[:leading]), request)
        is_list = isinstance(results, tuple)
        return ([*results], [*out_dims]) if is_list else (results, out_dims)

    torch.library.register_vmap(name, vmap, lib=LIBRARY)


def _dims(dim: Any, argument: Any) -> Any:
    """Return the batch dimension of each map of a list, of which torch says one, or each."""
    if isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], Tensor):
        return dim if isinstance(dim, (list, tuple)) else [dim] * len(argument)
    return None if isinstance(dim, (list, tuple)) else dim


def _settings(values: Settings) -> Settings:
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)


# ---- Batches of autograd itself (`is_grads_batched`): no operator may have a list of maps there


class OneByOne:
    """The operators of a pyramid as those of its single maps, for batches of any kind."""

    def __init__(self, family: PyramidFamily) -> None:
        (variant,) = family.op.variants.values()
        self._single = FAMILIES[variant.definition]

    def average_levels(
        self, features: Sequence[Tensor], boxes: Tensor, indices: Tensor | None, levels: Tensor,
        size: Any, scales: Sequence[float], *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Pool maps by an average."""
        parts, every = [], self._rows(levels, len(features))
        for maps, rows, scale in zip(features, every, scales, strict=True):
            at = _rows_of(rows, boxes, indices)
            parts.append(self._single.overloads["average"](maps, *at, size, scale, *placing))
        return torch.cat(parts).index_select(0, torch.argsort(torch.cat(every)))

    def average_levels_backward(
        self, grad: Tensor, boxes: Tensor, indices: Tensor | None, levels: Tensor,
        shapes: Sequence[int], channels_last: bool, scales: Sequence[float], *placing: Any,
    ) -> list[Tensor]:  # fmt: skip
        """Return the gradients of an average with respect to each of the maps."""
        backward = self._single.overloads["average_backward"]
        every = self._rows(levels, len(scales))
        return [
            backward(
                grad.index_select(0, rows), *_rows_of(rows, boxes, indices), shape, channels_last,
                scale, *placing,
            )
            for rows, shape, scale in zip(every, four_by_four(shapes), scales, strict=True)
        ]  # fmt: skip

    def average_levels_backward_boxes(
        self, grad: Tensor, features: Sequence[Tensor], boxes: Tensor, indices: Tensor | None,
        levels: Tensor, scales: Sequence[float], *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the gradient of an average with respect to the boxes."""
        slopes = self._single.overloads["average_backward_boxes"]
        parts, every = [], self._rows(levels, len(features))
        for maps, rows, scale in zip(features, every, scales, strict=True):
            at = _rows_of(rows, boxes, indices)
            parts.append(slopes(grad.index_select(0, rows), maps, *at, scale, *placing))
        return torch.cat(parts).index_select(0, torch.argsort(torch.cat(every)))

    def _rows(self, levels: Tensor, maps: int) -> list[Tensor]:
        return [torch.nonzero(levels == level)[:, 0] for level in range(maps)]


def _rows_of(rows: Tensor, *tables: Tensor | None) -> list[Tensor | None]:
    return [None if table is None else table.index_select(0, rows) for table in tables]


for _family in PYRAMID_FAMILIES.values():
    _alone = OneByOne(_family)
    for _function in PYRAMID_FUNCTIONS.values():
        _register_formulas(_family, _function)
        _operator = _function.operator
        _name = _family.overloads[_operator].name().partition(".")[0]
        LIBRARY.impl(_name, getattr(_alone, _operator), "Batched")
