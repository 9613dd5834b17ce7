"""Calls of public functions on tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from roipool._errors import with_name
from roipool._gradients import published_of, refuse_gradients
from roipool.torch._operations import FUNCTIONS

Function = Callable[..., Any]


def call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function; errors begin with its name."""
    if function.__module__.startswith("roipool.ops."):
        return FUNCTIONS[function.__name__](*args, **kwargs)
    if torch.compiler.is_dynamo_compiling():
        return _traced(function.__module__, function.__name__, tuple(args), dict(kwargs))
    return _named(function, args, kwargs)


def _named(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        if torch.is_grad_enabled():
            refuse_gradients(function, args, kwargs, _requires_gradient)
            published = published_of(function)
            if published is not None:
                own = published.of(args, kwargs)
                if not own.is_derivative and any(map(_requires_gradient, own.arrays)):
                    return own.asked(_Published.apply(own, *own.arrays))
        return function(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise with_name(error, function.__name__) from None


def _requires_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


@torch._dynamo.nonstrict_trace  # type: ignore[untyped-decorator]
def _traced(module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a function within a program that Dynamo traces: its checks are no part of that."""
    public = getattr(importlib.import_module(module), name)
    args, kwargs = _pytree.tree_map(_number, (args, kwargs))
    return public(*args, **kwargs)


def _number(value: Any) -> Any:
    """Return a number that is a symbol as the number that the program is compiled for."""
    if isinstance(value, torch.SymInt):
        return int(value)
    return float(value) if isinstance(value, torch.SymFloat) else value


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
