"""Derivatives of every operation, of every order that the kernels support.

An average is linear in the features, and so are its gradients: :class:`Average`,
:class:`AverageBackward` and :class:`BoxGradient` are closed under differentiation by features. A
maximum is linear once its argmax is known. Second derivatives with respect to boxes, and forward
mode through boxes, have no kernel and raise NotImplementedError: they are never silently zero.

Eager calls go through the functions of this file. Compilers cannot trace them (Dynamo refuses a
function that has its own forward mode), and call the operators, which have the same formulas. For
``roi_align``, registration is equivalent to ::

    class RoiAlign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, features, rois, size, scale, ratio, aligned):
            ctx.save_for_backward(rois)
            ctx.options = features.shape, False, scale, ratio, aligned
            return torch.ops.roipool.roi_align(features, rois, None, size, scale, ratio, aligned)

        @staticmethod
        def backward(ctx, grad):
            (rois,) = ctx.saved_tensors
            gradient = torch.ops.roipool.roi_align_backward(grad, rois, None, *ctx.options)
            return gradient, None, None, None, None, None

and ``roi_align_backward_rois`` of `grad` and the features, if the boxes require a gradient.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _C, Tensor
from torch.autograd import forward_ad

from roipool._errors import with_name
from roipool.torch import _batching
from roipool.torch._families import FAMILIES, Family, Settings
from roipool.torch._memory import PLAIN, are_channels_last
from roipool.torch._operators import LIBRARY, forward_mode_computed

SHAPE = operator.attrgetter("shape")


# ---- How a verb is computed


def transforms_are_active() -> bool:
    """Return whether a call is within a transform of torch.func, or forward mode."""
    return _C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def call(verb: str, settings: Settings, *tensors: Any) -> Any:
    """Compute a verb, recorded for autograd if a tensor requires derivatives."""
    if torch.compiler.is_compiling() or _C._is_tracing():
        return by_operator(verb, settings, *tensors)
    function = FUNCTIONS[verb]
    if _C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return function.apply(settings, *tensors)
    if torch.is_grad_enabled() and _C._any_requires_grad(*tensors):
        return function.apply_plainly(settings, *tensors)
    return run(verb, settings, *tensors)


def run(verb: str, settings: Settings, *tensors: Any) -> Any:
    """Compute a verb without derivatives.

    Plain tensors skip the dispatcher, whose call of Python takes as long as a small call.
    """
    family, device = settings.family, device_of_plain(*tensors)
    try:
        if device is None or _C._len_torch_dispatch_stack():
            with _C._AutoDispatchBelowAutograd(), forward_mode_computed():
                return by_operator(verb, settings, *tensors)
        compute = family.kernels[verb, device]
        if torch.autograd._profiler_enabled():
            return recorded(verb, settings, compute, settings, *tensors)
        return compute(settings, *tensors)
    except (TypeError, ValueError) as error:
        raise with_name(error, settings.operation) from None


def recorded(verb: str, settings: Settings, compute: Callable[..., Any], *args: Any) -> Any:
    """Compute within a profiler event with the name of the operation."""
    name, (_, *parts) = settings.operation, verb.split("_")
    if "_backward" not in name:
        name = "_".join((name, *parts))
    with torch.profiler.record_function(f"roipool::{name}"):
        return compute(*args)


def by_operator(verb: str, settings: Settings, *tensors: Any) -> Any:
    """Compute a verb with its operator."""
    family = settings.family
    results = family.overloads[verb](*family.to_operator(verb, settings, *tensors))
    return family.from_results(verb, results)


def device_of_plain(*tensors: Tensor | None) -> str | None:
    """Return the device type of plain tensors, or None if one is traced or batched."""
    device = None
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in PLAIN or not _C._has_storage(tensor):
            return None
        own = "CPU" if tensor.is_cpu else "CUDA" if tensor.is_cuda else None
        if own is None or own != (device or own):
            return None
        device = own
    return device


# ---- Functions


class Differentiable(torch.autograd.Function):  # type: ignore[misc]  # no types where no torch is
    """A function of settings, boxes and other tensors, with all its derivatives."""

    verb: str  # the operator of the family that computes it
    # The same function for plain autograd: torch spends several times a small call on finding out
    # whether a function can be transformed, and how.
    apply_plainly: Any

    def __init_subclass__(cls) -> None:
        if "verb" in vars(cls):
            cls.forward = staticmethod(functools.partial(run, cls.verb))
            cls.vmap = staticmethod(_batching.rule(cls.verb, functools.partial(call, cls.verb)))
            members = {
                "forward": staticmethod(cls._forward_plainly),
                "setup_context": staticmethod(torch.autograd.Function.setup_context),
            }
            plain: Any = type(cls.__name__, (cls,), members)
            cls.apply_plainly = super(torch.autograd.Function, plain).apply

    @staticmethod
    def kept(ctx: Any, output: Any, *inputs: Any) -> Sequence[Tensor | None]:
        """Return the tensors to save for derivatives; store other values in the context."""
        raise NotImplementedError

    @classmethod
    def _forward_plainly(cls, ctx: Any, *inputs: Any) -> Any:
        output = run(cls.verb, *inputs)
        ctx.needs = ctx.needs_input_grad
        ctx.materialize_grads = False
        ctx.save_for_backward(*cls.kept(ctx, output, *inputs))
        return output

    @classmethod
    def setup_context(cls, ctx: Any, inputs: Any, output: Any) -> None:
        """Save the values for derivatives in forward and reverse mode."""
        ctx.needs = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        tensors = cls.kept(ctx, output, *inputs)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)


class Average(Differentiable):
    """Average of features."""

    verb = "average"

    @staticmethod
    def kept(
        ctx: Any,
        output: Any,
        settings: Settings,
        boxes: Tensor,
        indices: Tensor | None,
        levels: Tensor | None,
        *maps: Tensor,
    ) -> Sequence[Tensor | None]:
        shapes = tuple(map(SHAPE, maps))
        last = are_channels_last(maps)
        ctx.settings = settings._replace(filling=0.0, shapes=shapes, channels_last=last)
        by_boxes = ctx.needs[1] and ctx.settings.moves_with_boxes
        return boxes, indices, levels, *(maps if by_boxes else ())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        boxes, indices, levels, *maps = ctx.saved_tensors
        settings, by_boxes = ctx.settings, None
        by_maps: Sequence[Any] = (None,) * len(settings.shapes)
        if grad is not None and True in ctx.needs[4:]:
            by_maps = call("average_backward", settings, boxes, indices, levels, grad)
        if grad is not None and maps:
            by_boxes = call("average_backward_boxes", settings, boxes, indices, levels, grad, *maps)
        return None, by_boxes, None, None, *by_maps

    @staticmethod
    def jvp(ctx: Any, _: Any, box_change: Any, *changes: Any) -> Any:
        refuse_moved_boxes(ctx, box_change)
        maps = with_zeros(changes[2:], ctx.settings.shapes)
        return call("average", ctx.settings, *ctx.saved_tensors[:3], *maps) if maps else None


class AverageBackward(Differentiable):
    """Backward of `Average` with respect to the features; a function of the pooled gradient."""

    verb = "average_backward"

    @staticmethod
    def kept(
        ctx: Any,
        output: Any,
        settings: Settings,
        boxes: Tensor,
        indices: Tensor | None,
        levels: Tensor | None,
        grad: Tensor,
    ) -> Sequence[Tensor | None]:
        ctx.settings = settings._replace(size=tuple(grad.shape[2:]))
        by_boxes = ctx.needs[1] and settings.moves_with_boxes
        return boxes, indices, levels, *((grad,) if by_boxes else ())

    @staticmethod
    def backward(ctx: Any, *changes: Any) -> Any:
        boxes, indices, levels, *grads = ctx.saved_tensors
        by_grad = by_boxes = None
        maps = with_zeros(changes, ctx.settings.shapes)
        if maps and ctx.needs[4]:
            by_grad = call("average", ctx.settings, boxes, indices, levels, *maps)
        if maps and grads:
            by_boxes = call(
                "average_backward_boxes", ctx.settings, boxes, indices, levels, *grads, *maps
            )
        return None, by_boxes, None, None, by_grad

    @staticmethod
    def jvp(ctx: Any, _: Any, box_change: Any, *changes: Any) -> Any:
        refuse_moved_boxes(ctx, box_change)
        *_, change = changes
        if change is None:
            return (None,) * len(ctx.settings.shapes)
        return call("average_backward", ctx.settings, *ctx.saved_tensors[:3], change)


class BoxGradient(Differentiable):
    """Backward of `Average` with respect to the boxes; a function of gradient and features."""

    verb = "average_backward_boxes"

    @staticmethod
    def kept(ctx: Any, output: Any, settings: Settings, *tensors: Any) -> Sequence[Tensor | None]:
        ctx.settings = settings
        return tensors

    @staticmethod
    def backward(ctx: Any, change: Any) -> Any:
        if change is not None:
            raise ctx.settings.refusal("second derivatives through boxes")
        return (None,) * (1 + len(ctx.saved_tensors))

    @staticmethod
    def jvp(ctx: Any, _: Any, box_change: Any, *changes: Any) -> Any:
        if box_change is not None:
            raise ctx.settings.refusal("second derivatives through boxes")
        boxes, indices, levels, grad, *maps = ctx.saved_tensors
        grad_change, map_changes = changes[2], changes[3:]
        parts = []
        if grad_change is not None:
            parts.append((grad_change, maps))
        if changed := with_zeros(map_changes, [*map(SHAPE, maps)]):
            parts.append((grad, changed))
        slopes = [
            call(BoxGradient.verb, ctx.settings, boxes, indices, levels, one, *every)
            for one, every in parts
        ]
        return None if not slopes else sum(slopes[1:], slopes[0])


class Maximum(Differentiable):
    """Maximum of features, and its argmax."""

    verb = "maximum"

    @staticmethod
    def kept(
        ctx: Any,
        output: Any,
        settings: Settings,
        boxes: Tensor,
        indices: Tensor | None,
        levels: None,
        maps: Tensor,
    ) -> Sequence[Tensor | None]:
        channels_last = are_channels_last([maps])
        ctx.settings = settings._replace(shapes=(maps.shape,), channels_last=channels_last)
        ctx.mark_non_differentiable(output[1])
        return boxes, indices, None, output[1]

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any = None) -> Any:
        if grad is None:
            return (None,) * 5
        if ctx.needs[1] and ctx.settings.moves_with_boxes:
            raise ctx.settings.refusal("gradient of a maximum of samples with respect to boxes")
        by_maps = None
        if ctx.needs[4]:
            *at, argmax = ctx.saved_tensors
            (by_maps,) = call("maximum_backward", ctx.settings, *at, grad, argmax)
        return None, None, None, None, by_maps

    @staticmethod
    def jvp(ctx: Any, _: Any, box_change: Any, *changes: Any) -> Any:
        refuse_moved_boxes(ctx, box_change)
        *_, change = changes
        return None if change is None else values_at(ctx, change), None


class MaximumBackward(Differentiable):
    """Backward of `Maximum` with respect to the features; a function of the pooled gradient."""

    verb = "maximum_backward"

    @staticmethod
    def kept(
        ctx: Any,
        output: Any,
        settings: Settings,
        boxes: Tensor,
        indices: Tensor | None,
        levels: None,
        grad: Tensor,
        argmax: Tensor,
    ) -> Sequence[Tensor | None]:
        ctx.settings = settings
        return boxes, indices, None, argmax

    @staticmethod
    def backward(ctx: Any, change: Any) -> Any:
        if change is not None and ctx.needs[1] and ctx.settings.moves_with_boxes:
            raise ctx.settings.refusal("derivatives of a maximum of samples through boxes")
        by_grad = None
        if change is not None and ctx.needs[4]:
            by_grad = values_at(ctx, change)
        return None, None, None, None, by_grad, None

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> Any:
        grad_change = changes[4]
        if grad_change is None:
            return (None,)
        *at, argmax = ctx.saved_tensors
        return call("maximum_backward", ctx.settings, *at, grad_change, argmax)


def refuse_moved_boxes(ctx: Any, change: Tensor | None) -> None:
    """Refuse forward-mode derivatives with respect to boxes, unless they are 0."""
    if change is not None and ctx.settings.moves_with_boxes:
        raise ctx.settings.refusal("derivatives in forward mode with respect to boxes")


def with_zeros(changes: Sequence[Tensor | None], shapes: Sequence[Any]) -> list[Tensor]:
    """Return tangents of maps, with zeros for None; an empty list if all are None."""
    like = next((each for each in changes if each is not None), None)
    if like is None:
        return []
    both = zip(changes, shapes, strict=True)
    return [like.new_zeros(shape) if each is None else each for each, shape in both]


def values_at(ctx: Any, maps: Tensor) -> Tensor:
    """Return the values of maps where the argmax of a maximum says; 0 where it is -1."""
    boxes, indices, _, argmax = ctx.saved_tensors
    if not ctx.settings.rules.argmax_is_cell:
        raise ctx.settings.refusal("second or forward-mode derivatives for mode='max'")
    images, channels, height, width = maps.shape
    image = (boxes[:, 0] if indices is None else indices).long().clamp(0, max(images - 1, 0))
    plane = image[:, None] * channels + torch.arange(channels, device=maps.device)
    cells = plane[:, :, None, None] * (height * width) + argmax.clamp(min=0)
    values = maps.reshape(-1)[cells] if maps.numel() else maps.new_zeros(argmax.shape)
    return torch.where(argmax < 0, torch.zeros_like(values), values)


FUNCTIONS: dict[str, type[Differentiable]] = {
    function.verb: function
    for function in (Average, AverageBackward, BoxGradient, Maximum, MaximumBackward)
}


# ---- The same formulas for the operators, which compiled and exported programs call


def _register_formulas(family: Family, verb: str, name: str) -> None:
    function = FUNCTIONS[verb]

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        settings, *tensors = family.from_operator(verb, inputs)
        ctx.needs = (False, *family.tensors_of_operator(verb, ctx.needs_input_grad))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*function.kept(ctx, output, settings, *tensors))

    def backward(ctx: Any, *grads: Any) -> Any:
        changes = grads[0] if isinstance(grads[0], (list, tuple)) else grads
        found = function.backward(ctx, *changes)
        return family.operator_gradients(verb, found)

    torch.library.register_autograd(name, backward, setup_context=setup_context, lib=LIBRARY)
    fold = _batching.rule(verb, functools.partial(by_operator, verb))

    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        dims = [_dims(dim, arg) for dim, arg in zip(in_dims, args, strict=True)]
        settings, *tensors = family.from_operator(verb, args)
        places = (None, *family.tensors_of_operator(verb, dims))
        results, out_dims = fold(info, places, settings, *tensors)
        return family.to_results(verb, results), family.to_results(verb, out_dims)

    torch.library.register_vmap(name, vmap, lib=LIBRARY)


def _dims(dim: Any, argument: Any) -> Any:
    """Return the batch dimension of each map of a list, of which torch says one, or each."""
    if isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], Tensor):
        return dim if isinstance(dim, (list, tuple)) else [dim] * len(argument)
    return None if isinstance(dim, (list, tuple)) else dim


for _family in FAMILIES.values():
    for _verb, _name in _family.names.items():
        _register_formulas(_family, _verb, f"roipool::{_name}")
        if _family.is_pyramid:
            LIBRARY.impl(_name, _batching.one_by_one(_family, _verb), "Batched")
