"""What roipool's own operations refuse of tensors, besides what NumPy's functions refuse of arrays.

That are numbers given as tensors, which would be constants, and torchvision's `BoundingBoxes` of
another format than an operation reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.autograd import forward_ad

from roipool._arrays import parts_of
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op
from roipool._gradients import named, signature_of

Function = Callable[..., Any]

_OPERATIONS: dict[str, Op] = {
    name: op
    for op in (*OPS.values(), *PYRAMID_OPS.values(), *VOLUME_OPS.values())
    for name in op.functions.values()
}
_OTHERS = {"assign_levels": "rois"}  # public functions of no operation, and their boxes
# Modules of roipool's own functions. Those of no operation are of pictures and masks, whose boxes
# are corners unless an argument says otherwise.
_OWN_MODULES = ("roipool.ops.", "roipool._masks.")


def is_of_core(function: Function) -> bool:
    """Return whether a public function is one of roipool's own operations."""
    is_known = function.__name__ in _OPERATIONS or function.__name__ in _OTHERS
    return is_known and function.__module__.startswith("roipool.ops.")


def checked_arguments(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of one of roipool's own functions, checked.

    Boxes that pooled values do not follow get no gradient, as in torchvision, rather than zeros.
    """
    if all(map(_is_usual, args)) and all(map(_is_usual, kwargs.values())):
        return args, kwargs
    op = _OPERATIONS.get(function.__name__)
    boxes = _OTHERS.get(function.__name__) if op is None else op.boxes
    for name, value in named(function, args, kwargs):
        for part_name, part in _parts(name, value):
            if not isinstance(part, Tensor):
                continue
            if part.dim() == 0:
                raise TypeError(
                    f"{part_name} must not be a tensor: only maps, boxes and indices may be"
                )
            if name == boxes and type(part) is not Tensor and hasattr(part, "format"):
                check_box_format(part_name, part, _format(op, function, args, kwargs))
            is_constant = name == boxes and op is not None and op.backward_boxes is None
            if is_constant and (part.requires_grad or forward_ad._current_level >= 0):
                return _with(function, args, kwargs, name, _detached(value))
    return args, kwargs


def check_formats_of_pictures(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Check the format of boxes, for roipool's own functions of pictures; those of others pass."""
    if not function.__module__.startswith(_OWN_MODULES):
        return
    for name, value in named(function, args, kwargs):
        for part_name, part in _parts(name, value) if name == "boxes" else ():
            if isinstance(part, Tensor) and hasattr(part, "format"):
                check_box_format(part_name, part, _format(None, function, args, kwargs))


# Types of arguments that are no tensors and hold none.
_USUAL = frozenset({type(None), bool, int, float, str})


def _is_usual(value: Any) -> bool:
    """Return whether an argument is a tensor without format and gradient, or no tensor."""
    if type(value) is not Tensor:
        return type(value) in _USUAL
    is_plain = forward_ad._current_level < 0 and not value.requires_grad
    return is_plain and value.dim() > 0


def _detached(boxes: Any) -> Any:
    return [each.detach() for each in boxes] if isinstance(boxes, (list, tuple)) else boxes.detach()


def _with(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, value: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with another one of this name."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.arguments[name] = value
    return bound.args, bound.kwargs


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    is_list = isinstance(value, (list, tuple))
    for number, part in enumerate(parts_of(value)):
        yield f"{name}[{number}]" if is_list else name, part


def _format(op: Op | None, function: Function, args: Any, kwargs: Any) -> str:
    """Return the format with the meaning of an operation's boxes."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.apply_defaults()
    options = bound.arguments
    if op is not None and op.is_rotated:
        turns_alike = options["angle_unit"] == "degrees" and not options["clockwise"]
        return "CXCYWHR" if turns_alike else "CXCYWHR with angle_unit='degrees'"
    if op is not None and op.form.is_normalised:
        return "y1, x1, y2, x2 as fractions"
    return str(options.get("box_format", "xyxy")).upper()


def check_box_format(name: str, boxes: Tensor, allowed: str = "XYXY") -> None:
    """Check that torchvision's `BoundingBoxes`, which have a format, are of the allowed one."""
    own = getattr(getattr(boxes, "format", None), "name", allowed)
    if own != allowed:
        raise ValueError(f"{name} of BoundingBoxes must have the format {allowed}, got {own}")
