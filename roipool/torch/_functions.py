"""Derivatives of every operation, of any order that the kernels give.

An average is linear in the features, and so are its gradients: :class:`Average`, its transpose
:class:`AverageBackward` and :class:`BoxGradient` are closed under differentiation by features. A
maximum is linear once its argmax is known. What no kernel computes, second derivatives by boxes and
forward mode through them, is a NotImplementedError, never a silent zero.

Eager calls go through the functions of this file. Compilers cannot trace them (Dynamo refuses a
function that has its own forward mode), and call the operators, which have the same formulas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from roipool._errors import with_name
from roipool.torch import _batching
from roipool.torch._memory import is_channels_last
from roipool.torch._operators import (
    FAMILIES,
    LIBRARY,
    Family,
    Settings,
    forward_mode_computed,
)

PLAIN = (torch.Tensor, torch.nn.Parameter)

# By operator: how a function's arguments become an operator's, where that takes lists of maps.
GROUPINGS: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {}


@dataclass(slots=True)
class Request:
    """The operator that a function computes, and its settings."""

    family: Family
    settings: Settings


# ---- How a call is made


def transforms_are_active() -> bool:
    """Return whether a call is within a transform of torch.func, or forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def call(operator: str, *args: Any) -> Any:
    """Compute an operator, with the derivatives that arguments require."""
    request = args[-1]
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return request.family.overloads[operator](*operands(operator, args), *request.settings)
    function = FUNCTIONS[operator]
    if transforms_are_active():
        return function.apply(*args)
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in args[:-1]):
        return function.single_level.apply(*args)
    return function.forward(*args)


def run(operator: str, *args: Any) -> Any:
    """Compute an operator without derivatives.

    On plain tensors at once: the dispatcher's way to Python costs as much as a small call.
    """
    try:
        results = computed(operator, *args)
    except (TypeError, ValueError) as error:
        raise with_name(error, args[-1].family.op.forward) from None
    return tuple(results) if type(results) is list else results


def computed(operator: str, *args: Any) -> Any:
    """Return the results of an operator."""
    request, given = args[-1], operands(operator, args)
    device = device_of(operator, args)
    if device is not None and not torch._C._len_torch_dispatch_stack():
        compute = request.family.kernels[operator, device]
        if torch.autograd._profiler_enabled():
            return recorded(request.family, operator, compute, *given, *request.settings)
        return compute(*given, *request.settings)
    with torch._C._AutoDispatchBelowAutograd(), forward_mode_computed():
        return request.family.overloads[operator](*given, *request.settings)


def recorded(family: Family, operator: str, compute: Callable[..., Any], *args: Any) -> Any:
    """Compute within an event for profilers, named as the dispatcher names an operator's."""
    with torch.profiler.record_function(family.overloads[operator]._schema.name):
        return compute(*args)


def operands(operator: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a function's arguments before the request as operators take them."""
    group = GROUPINGS.get(operator)
    return args[:-1] if group is None else group(args)


def device_of(operator: str, args: tuple[Any, ...]) -> str | None:
    """Return the kind of device of a function's arguments, if they are plain tensors there."""
    tensors = args[:2]
    if operator in GROUPINGS:
        tensors = tuple(each for each in args[:-1] if isinstance(each, Tensor))
    first = device_of_plain(tensors[0])
    for other in tensors[1:]:
        if device_of_plain(other) != first:
            return None
    return first


def device_of_plain(tensor: Tensor) -> str | None:
    """Return the kind of device of a tensor that is memory there, neither traced nor batched."""
    if type(tensor) in PLAIN and torch._C._has_storage(tensor):
        return "CPU" if tensor.is_cpu else "CUDA" if tensor.is_cuda else None
    return None


def refusal(what: str, family: Family) -> NotImplementedError:
    """Return the error for a derivative that no kernel computes."""
    return NotImplementedError(f"{family.op.forward}: roipool computes no {what}")


# ---- Functions


class Differentiable(torch.autograd.Function):  # type: ignore[misc]  # no types where no torch is
    """A function of tensors and a request, its last argument, with all its derivatives.

    Attributes
    ----------
    operator : str
        Which of a family's operators computes it.
    leading : int
        Arguments before the request.
    single_level : type
        The same function for plain autograd: torch spends several times a small call on finding
        out the signature of a function that transforms can use.
    """

    operator: str
    leading: int
    single_level: type[Differentiable]

    def __init_subclass__(cls) -> None:
        if "operator" in vars(cls):
            cls.forward = staticmethod(functools.partial(run, cls.operator))
            cls.vmap = staticmethod(
                _batching.rule(cls.operator, functools.partial(call, cls.operator))
            )
            members = {
                "forward": staticmethod(cls._forward_and_setup),
                "setup_context": staticmethod(torch.autograd.Function.setup_context),
            }
            cls.single_level = type(cls.__name__, (cls,), members)

    @classmethod
    def _forward_and_setup(cls, ctx: Any, *inputs: Any) -> Any:
        output = cls.forward(*inputs)
        cls.setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def save(ctx: Any, *tensors: Tensor | None) -> None:
        """Save tensors for derivatives of either mode."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def check_box_tangent(ctx: Any, tangent: Tensor | None) -> None:
        """Refuse forward mode through boxes, unless they move nothing."""
        if tangent is not None and moves_with_boxes(ctx.request):
            raise refusal("derivatives in forward mode with respect to boxes", ctx.request.family)


class Average(Differentiable):
    """An average of features, boxes, indices."""

    operator = "average"
    leading = 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        features, boxes, indices, request = inputs
        family = request.family
        ctx.request = Request(family, family.placing_of(request.settings))
        ctx.size = tuple(request.settings[0])
        ctx.map_form = (tuple(features.shape), is_channels_last(features))
        by_boxes = ctx.needs_input_grad[1] and moves_with_boxes(ctx.request)
        Differentiable.save(ctx, features if by_boxes else None, boxes, indices)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        features, boxes, indices = ctx.saved_tensors
        by_features = by_boxes = None
        if grad is not None and ctx.needs_input_grad[0]:
            by_features = call("average_backward", grad, boxes, indices, *ctx.map_form, ctx.request)
        if grad is not None and features is not None:
            by_boxes = call("average_backward_boxes", grad, features, boxes, indices, ctx.request)
        return by_features, by_boxes, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, box_tangent: Any, *_: Any) -> Any:
        Differentiable.check_box_tangent(ctx, box_tangent)
        if tangent is None:
            return None
        _, boxes, indices = ctx.saved_tensors
        return call("average", tangent, boxes, indices, tangent_request(ctx.request, ctx.size))


class AverageBackward(Differentiable):
    """Backward of `Average` with respect to the features.

    Operands: grad_output, boxes, indices, input_shape, channels_last.
    """

    operator = "average_backward"
    leading = 5

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad, boxes, indices, *map_form, ctx.request = inputs
        ctx.size, ctx.map_form = tuple(grad.shape[2:]), map_form
        by_boxes = ctx.needs_input_grad[1] and moves_with_boxes(ctx.request)
        Differentiable.save(ctx, grad if by_boxes else None, boxes, indices)

    @staticmethod
    def backward(ctx: Any, tangent: Any) -> Any:
        grad, boxes, indices = ctx.saved_tensors
        by_grad = by_boxes = None
        if tangent is not None and ctx.needs_input_grad[0]:
            by_grad = call(
                "average", tangent, boxes, indices, tangent_request(ctx.request, ctx.size)
            )
        if tangent is not None and grad is not None:
            by_boxes = call("average_backward_boxes", grad, tangent, boxes, indices, ctx.request)
        return by_grad, by_boxes, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, box_tangent: Any, *_: Any) -> Any:
        Differentiable.check_box_tangent(ctx, box_tangent)
        if tangent is None:
            return None
        _, boxes, indices = ctx.saved_tensors
        return call("average_backward", tangent, boxes, indices, *ctx.map_form, ctx.request)


class BoxGradient(Differentiable):
    """Backward of `Average` with respect to the boxes.

    Operands: grad_output, features, boxes, indices.
    """

    operator = "average_backward_boxes"
    leading = 4

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.request = inputs
        Differentiable.save(ctx, *tensors)

    @staticmethod
    def backward(ctx: Any, tangent: Any) -> Any:
        if tangent is not None:
            raise refusal("second derivatives through boxes", ctx.request.family)
        return (None,) * (len(ctx.saved_tensors) + 1)

    @staticmethod
    def jvp(ctx: Any, grad_tangent: Any, tangent: Any, box_tangent: Any, *_: Any) -> Any:
        if box_tangent is not None:
            raise refusal("second derivatives through boxes", ctx.request.family)
        grad, features, boxes, indices = ctx.saved_tensors
        parts = [
            call("average_backward_boxes", *both, boxes, indices, ctx.request)
            for both in ((grad_tangent, features), (grad, tangent))
            if both[0] is not None and both[1] is not None
        ]
        return None if not parts else sum(parts[1:], parts[0])


class Maximum(Differentiable):
    """A maximum and its argmax, of features, boxes, indices."""

    operator = "maximum"
    leading = 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        features, boxes, indices, request = inputs
        family = request.family
        ctx.request = Request(family, family.placing_of(request.settings))
        ctx.map_form = (tuple(features.shape), is_channels_last(features))
        ctx.mark_non_differentiable(output[1])
        Differentiable.save(ctx, output[1], boxes, indices)

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any = None) -> Any:
        if grad is None:
            return (None,) * 4
        if ctx.needs_input_grad[1] and moves_with_boxes(ctx.request):
            family = ctx.request.family
            raise refusal("gradient of a maximum of samples with respect to boxes", family)
        by_features = None
        if ctx.needs_input_grad[0]:
            argmax, boxes, indices = ctx.saved_tensors
            by_features = call(
                "maximum_backward", grad, argmax, boxes, indices, *ctx.map_form, ctx.request
            )
        return by_features, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, box_tangent: Any, *_: Any) -> Any:
        Differentiable.check_box_tangent(ctx, box_tangent)
        if tangent is None:
            return None, None
        return values_at(ctx.request.family, tangent, *ctx.saved_tensors), None


class MaximumBackward(Differentiable):
    """Backward of `Maximum` with respect to the features.

    Operands: grad_output, argmax, boxes, indices, input_shape, channels_last.
    """

    operator = "maximum_backward"
    leading = 6

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, *tensors, shape, channels_last, ctx.request = inputs
        ctx.map_form = (shape, channels_last)
        Differentiable.save(ctx, *tensors)

    @staticmethod
    def backward(ctx: Any, tangent: Any) -> Any:
        if tangent is not None and ctx.needs_input_grad[2] and moves_with_boxes(ctx.request):
            raise refusal("derivatives of a maximum of samples through boxes", ctx.request.family)
        by_grad = None
        if tangent is not None and ctx.needs_input_grad[0]:
            by_grad = values_at(ctx.request.family, tangent, *ctx.saved_tensors)
        return (by_grad, *(None,) * 6)

    @staticmethod
    def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
        if tangent is None:
            return None
        return call("maximum_backward", tangent, *ctx.saved_tensors, *ctx.map_form, ctx.request)


def moves_with_boxes(request: Request) -> bool:
    """Return whether pooled values follow the boxes; `request` is that of a gradient."""
    return request.family.moves_with_boxes(request.settings)


def tangent_request(request: Request, size: tuple[int, int]) -> Request:
    """Return a forward's request for a change of its maps: bins outside have a change of 0."""
    family = request.family
    fillings = () if family.op.filling is None else (0.0,)
    return Request(family, (size, *request.settings, *fillings))


def values_at(
    family: Family, maps: Tensor, argmax: Tensor, boxes: Tensor, indices: Tensor | None
) -> Tensor:
    """Return the values of maps where an argmax says; 0 where it is -1."""
    if not family.rules.argmax_is_cell:
        raise refusal("second derivatives, nor forward mode, of a maximum of samples", family)
    images, channels, height, width = maps.shape
    image = (boxes[:, 0] if indices is None else indices).long().clamp(0, max(images - 1, 0))
    plane = image[:, None] * channels + torch.arange(channels, device=maps.device)
    cells = plane[:, :, None, None] * (height * width) + argmax.clamp(min=0)
    values = maps.reshape(-1)[cells] if maps.numel() else maps.new_zeros(argmax.shape)
    return torch.where(argmax < 0, torch.zeros_like(values), values)


FUNCTIONS: dict[str, type[Differentiable]] = {
    function.operator: function
    for function in (Average, AverageBackward, BoxGradient, Maximum, MaximumBackward)
}


# ---- The same formulas for the operators, which compiled and exported programs call


def _register_formulas(family: Family, function: type[Differentiable]) -> None:
    leading, overload = function.leading, family.overloads[function.operator]
    name = overload.name().partition(".")[0]
    settings = len(overload._schema.arguments) - leading

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        request = Request(family, tuple(inputs[leading:]))
        function.setup_context(ctx, (*inputs[:leading], request), output)

    def backward(ctx: Any, *grads: Any) -> Any:
        return (*function.backward(ctx, *grads)[:-1], *(None,) * settings)

    torch.library.register_autograd(name, backward, setup_context=setup_context, lib=LIBRARY)
    fold = _batching.rule(function.operator, lambda *args: overload(*args[:-1], *args[-1].settings))

    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        request = Request(family, args[leading:])
        return fold(info, (*in_dims[:leading], None), *args[:leading], request)

    torch.library.register_vmap(name, vmap, lib=LIBRARY)


for _family in FAMILIES.values():
    for _operator in _family.overloads:
        _register_formulas(_family, FUNCTIONS[_operator])
