"""Calls of public functions on tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roipool._cpu import KeptCalls
from roipool._errors import with_name
from roipool._gradients import published_of, refuse_gradients
from roipool._kept import SmallCalls
from roipool._request import LAST
from roipool.torch._core import check_formats_of_pictures, checked_arguments, is_of_core
from roipool.torch._families import PUBLIC
from roipool.torch._host_calls import is_watched, result_on_host
from roipool.torch._memory import PLAIN
from roipool.torch._recorded import recorded_on_host
from roipool.torch._small_calls import small_call, small_call_on_gpu

Function = Callable[..., Any]


class _Kept(NamedTuple):
    """Small calls of a function: on arrays of plain tensors' memory, and on tensors as such."""

    arrays: KeptCalls
    tensors: SmallCalls
    on_gpu: SmallCalls
    others: set[tuple[Any, ...]]  # types of arguments of calls that are not recorded as arrays


_kept: dict[Function, _Kept] = {}
is_on_gpu = operator.attrgetter("is_cuda")


def call(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a public function; errors begin with its name."""
    if torch.compiler.is_dynamo_compiling():
        from roipool.torch._tracing import call_in_trace  # imports Dynamo

        return call_in_trace(function.__module__, function.__name__, args, kwargs)
    if is_watched():
        return _call_generally(function, *args, **kwargs)
    found = _kept.get(function)
    if found is None:
        found = _kept.setdefault(function, _kept_of(function))
    first: Any = args[0] if args else None
    if type(first) in (list, tuple) and first:
        first = first[0]
    is_plain = type(first) in PLAIN
    if is_plain and is_on_gpu(first):
        return found.on_gpu(args, kwargs)
    result = None
    if not (is_plain and first.requires_grad and torch.is_grad_enabled()):
        result = result_on_host(function, found.arrays, args, kwargs)
    if result is None:
        result = recorded_on_host(function, found.arrays, found.others, args, kwargs)
    return found.tensors(args, kwargs) if result is None else result


def _kept_of(function: Function) -> _Kept:
    """Return what keeps the small calls of a function, none yet."""

    def general(*args: Any, **kwargs: Any) -> Any:
        return _call_generally(function, *args, **kwargs)

    tensors, on_gpu = (
        SmallCalls(function, general, prepare) for prepare in (small_call, small_call_on_gpu)
    )
    return _Kept(KeptCalls(), tensors, on_gpu, set())


def _call_generally(function: Function, /, *args: Any, **kwargs: Any) -> Any:
    """Compute a function with all checks."""
    PUBLIC.name = function.__name__
    try:
        if is_of_core(function):
            args, kwargs = checked_arguments(function, args, kwargs)
        else:
            check_formats_of_pictures(function, args, kwargs)
            if torch.is_grad_enabled():
                refuse_gradients(function, args, kwargs, _requires_gradient)
        published = published_of(function)
        if published is not None:
            own = published.of(args, kwargs)
            if not own.is_derivative:
                LAST.is_asked_for = False  # no such call is kept: gradients are not derivatives
                if torch.is_grad_enabled() and any(map(_requires_gradient, own.arrays)):
                    return own.asked(_Published.apply(own, *own.arrays))
        return function(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise with_name(error, function.__name__) from None


def _requires_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


# ---- Published gradients


class _Published(torch.autograd.Function):  # type: ignore[misc]  # no types where no torch is
    """A function whose gradients are those that its system publishes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: Any, *tensors: Tensor) -> Any:
        return call.results(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, *tensors = inputs
        results = output if isinstance(output, tuple) else (output,)
        ctx.count = len(tensors)
        ctx.mark_non_differentiable(*results[1:])
        ctx.save_for_backward(*tensors, *results[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> Any:
        saved = ctx.saved_tensors
        tensors, more = saved[: ctx.count], saved[ctx.count :]
        needed = ctx.needs_input_grad[1:]
        return None, *ctx.call.gradients(gradient, tensors, more, needed)
