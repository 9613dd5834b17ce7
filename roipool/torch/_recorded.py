"""Calls on plain CPU tensors that autograd records: NumPy's calls on their memory.

What a function returns is often one average of maps as the caller gave them. It is linear in them,
so that its request and boxes are all that derivatives with respect to the maps need. Calls for
other derivatives, and other calls, are recorded as those of tensors are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import _C, Tensor, is_grad_enabled

from roipool import _cpu
from roipool._arrays import parts_of
from roipool._boxes import Regions
from roipool._cpu import KeptCalls
from roipool._gradients import features_of, gradient_names, published_of
from roipool._kept import compute_and_keep
from roipool._request import Pooling
from roipool.torch._autograd import device_of_plain
from roipool.torch._core import is_of_core
from roipool.torch._families import AVERAGE
from roipool.torch._host_calls import REFUSALS, as_array, is_watched, on_torch_threads
from roipool.torch._library import verbs
from roipool.torch._memory import ENGINE, HOST, map_array

_compute_and_keep = functools.partial(compute_and_keep, needs_boxes=True)


class _Done(NamedTuple):
    """An average that is computed: its request, and the boxes as `Regions` or as one table."""

    pooled: Tensor
    pooling: Pooling
    cuts: bool
    boxes: Sequence[Tensor | None]


def recorded_on_host(
    function: Callable[..., Any],
    kept: KeptCalls,
    others: set[tuple[Any, ...]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return the result of a public function, recorded; None if it is to be recorded otherwise.

    `others` are the types of the arguments of such calls, so that nothing is computed twice.
    """
    kinds = (*map(type, args), *kwargs)
    if not (args and is_grad_enabled() and kinds not in others and _is_linear(function)):
        return None
    first = args[0]
    parts = _parts(first)
    if not _C._any_requires_grad(*parts) or torch.autograd._profiler_enabled():
        return None
    try:
        own = (as_array(_detached(first)), *[as_array(each) for each in args[1:]])
        named = {name: as_array(each) for name, each in kwargs.items()} if kwargs else kwargs
        done, features = _computed(function, kept, args, own, named)
    except REFUSALS:
        return None
    tensors = dict(zip(map(id, _parts(own[0])), parts, strict=True))
    if done is None or any(id(each) not in tensors for each in features):
        others.add(kinds)
        return None
    return _Recorded.apply_plainly(done, *[tensors[id(each)] for each in features])


@functools.cache
def _is_linear(function: Callable[..., Any]) -> bool:
    """Return whether a function's gradient with respect to its features is the derivative."""
    if published_of(function) is not None:
        return False
    known = gradient_names(function)
    return is_of_core(function) or known is None or features_of(function) in known


def _parts(maps: Any) -> Sequence[Any]:
    return [*maps.values()] if isinstance(maps, dict) else parts_of(maps)


def _detached(maps: Any) -> Any:
    """Return maps without their gradients."""
    if isinstance(maps, dict):
        return {name: each.detach() for name, each in maps.items()}
    return [each.detach() for each in maps] if isinstance(maps, (list, tuple)) else maps.detach()


def _computed(
    function: Callable[..., Any],
    kept: KeptCalls,
    args: tuple[Any, ...],
    own: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[_Done | None, Sequence[Any]]:
    """Compute a function of arrays; return the average that it is, of these maps, or None."""
    table = own[1] if len(own) > 1 and type(own[1]) is np.ndarray else None
    prepared = None if table is None else kept.prepared(own, named)
    if prepared is not None:
        if not prepared.is_average:
            return None, ()
        result = on_torch_threads(prepared.result, own[0], table)
        if result is not None:
            pooled, request = torch.from_numpy(result), prepared.pooling
            return _Done(pooled, request, prepared.cuts, args[1:2]), own[:1]
    result, last = on_torch_threads(_compute_and_keep, function, kept, own, named)
    if last is None or last.kind["is_maximum"] or last.shapes is not None:
        return None, ()
    pooled = torch.from_numpy(result)
    is_prepared = last.is_kept and last.given[1] is table
    if is_prepared and table is not None and table.shape[1:] == (last.columns + 1,):
        return _Done(pooled, last.pooling, last.kind["cuts"], args[1:2]), last.maps  # as prepared
    boxes = [None if each is None else torch.from_numpy(each) for each in last.regions]
    cuts = last.kind["cuts"] and last.regions.batch_indices is None  # one table of both
    return _Done(pooled, last.pooling, cuts, boxes), last.maps


class _Recorded(torch.autograd.Function):  # type: ignore[misc]  # no types where no torch is
    """An average of maps that is computed already, with its derivatives."""

    apply_plainly: Any

    @staticmethod
    def forward(ctx: Any, done: _Done, *maps: Tensor) -> Tensor:
        ctx.pooling, ctx.cuts = done.pooling._replace(empty_value=0.0), done.cuts
        ctx.shapes = tuple([tuple(each.shape) for each in maps])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*done.boxes)
        return done.pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        if gradient is None:
            return None, *(None for _ in ctx.shapes)
        boxes, indices, levels = (*ctx.saved_tensors, None, None)[:3]
        regions = Regions(boxes, indices, levels)
        is_general = is_watched() or is_grad_enabled() or torch.autograd._profiler_enabled()
        if device_of_plain(gradient) == "CPU" and not is_general:
            found = _gradients(gradient, regions, ctx.pooling, ctx.shapes, ctx.cuts)
        else:
            found = verbs.average_backward(
                gradient, regions, ctx.pooling, ctx.shapes, cuts=ctx.cuts
            )
        return None, *found


# Below torch's own check whether a function can be transformed, and how: see `Differentiable`.
_Recorded.apply_plainly = super(torch.autograd.Function, _Recorded).apply


def _gradients(
    gradient: Tensor, regions: Regions, pooling: Pooling, shapes: Sequence[Any], cuts: bool
) -> list[Tensor]:
    """Return the gradient with respect to each of the maps of such shapes, computed at once."""
    given = map_array(HOST, gradient, False)
    boxes, indices, levels = [None if each is None else each.numpy() for each in regions]
    own = AVERAGE.regions(boxes, indices, shapes[0][0], given.dtype, cuts=cuts)
    results = [_cpu.empty_array(shape, given.dtype) for shape in shapes]
    ENGINE.average_backward(given, own._replace(levels=levels), pooling, results)
    return [torch.from_numpy(each) for each in results]
