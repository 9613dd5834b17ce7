"""The public operations for tensors, made from the table ``OPS`` and NumPy's signatures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool._definitions import OPS, Op
from roipool.torch._functions import Request, call
from roipool.torch._memory import is_channels_last
from roipool.torch._operators import FAMILIES, Family, Settings

Arguments = Mapping[str, Any]


class Operation:
    """One operation's public functions for tensors.

    Attributes
    ----------
    op : Op
        The operation.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self._families = {
            is_maximum: FAMILIES[name]
            for is_maximum, name in ((False, op.forward), (True, f"{op.forward}_max"))
            if name in FAMILIES
        }
        if len(self._families) == 1:
            (only,) = self._families.values()
            self._families = {only.is_maximum: only}
        options = {name for variant in op.variants.values() for name in variant.options}
        self._allowed = {
            name: tuple(variant.options[name] for variant in op.variants.values())
            for name in sorted(options)
        }

    # ---- The functions

    def forward(self, given: Arguments) -> Any:
        """Pool maps."""
        op, features = self.op, given["features"]
        family = self._family(given)
        boxes, indices = self._boxes(given, "features")
        self._check_out(given)
        size, filling = given[op.size], given.get(str(op.filling), 0.0)
        request = Request(family, settings(family.name, size, placing(family, given), filling))
        order = check.layout(given["layout"])
        wants_argmax = check.flag("return_argmax", given.get("return_argmax", False))
        pooled = call(
            "maximum" if family.is_maximum else "average",
            to_nchw(features, order), boxes, indices, request,
        )  # fmt: skip
        if not family.is_maximum:
            if wants_argmax:
                raise ValueError("return_argmax must be False with mode='avg': an average has none")
            return from_nchw(pooled, order)
        values, argmax = (from_nchw(each, order) for each in pooled)
        return (values, argmax) if wants_argmax else values

    def backward(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the features."""
        family, order = self._family(given), check.layout(given["layout"])
        boxes, indices = self._boxes(given, "grad_output")
        self._check_out(given)
        gradient = to_nchw(given["grad_output"], order)
        shape = check.map_shape("input_shape", given["input_shape"], order)
        if order == "NHWC":
            shape = (shape[0], shape[3], shape[1], shape[2])
        # A maximum of cells needs no more than its argmax.
        values = placing(family, {"spatial_scale": 1.0, **given})
        request = Request(family, settings(family.name, 1, values)[1 : 1 + len(values)])
        argmax = given.get("argmax")
        if not family.is_maximum:
            if argmax is not None:
                raise ValueError("argmax must not be given with mode='avg': an average has none")
            form = (shape, is_channels_last(gradient))
            return from_nchw(
                call("average_backward", gradient, boxes, indices, *form, request), order
            )
        if not isinstance(argmax, Tensor):
            raise TypeError(f"argmax must be the tensor that {self.op.forward} returned")
        form = (shape, is_channels_last(gradient))
        chosen = to_nchw(argmax, order)
        return from_nchw(
            call("maximum_backward", gradient, chosen, boxes, indices, *form, request), order
        )

    def backward_boxes(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the boxes."""
        given = {**{name: values[0] for name, values in self._allowed.items()}, **given}
        family, order = self._family(given), check.layout(given["layout"])
        boxes, indices = self._boxes(given, "features")
        values = placing(family, given)
        request = Request(family, settings(family.name, 1, values)[1 : 1 + len(values)])
        gradient, features = (to_nchw(given[name], order) for name in ("grad_output", "features"))
        slopes = call("average_backward_boxes", gradient, features, boxes, indices, request)
        return slopes[:, boxes.shape[1] - self.op.columns :]

    # ---- Arguments

    def _family(self, given: Arguments) -> Family:
        for name, allowed in self._allowed.items():
            check.choice(name, given[name], allowed)
        for variant in self.op.variants.values():
            if all(given[name] == value for name, value in variant.options.items()):
                return self._families[variant.has_argmax]
        raise AssertionError  # every choice is a variant's

    def _check_out(self, given: Arguments) -> None:
        if given.get("out") is not None:
            raise TypeError(f"{self.op.forward}: out must be None for tensors")

    def _boxes(self, given: Arguments, maps: str) -> tuple[Tensor, Tensor | None]:
        """Return boxes and indices as operators take them; all arrays must be tensors."""
        op, boxes, indices = self.op, given[self.op.boxes], given[self.op.indices]
        for name in (maps, *(["grad_output"] if "grad_output" in given else [])):
            if not isinstance(given[name], Tensor):
                self._refuse(name, given[name])
        if indices is not None and not isinstance(indices, Tensor):
            self._refuse(op.indices, indices)
        if isinstance(boxes, Tensor):
            return boxes, indices
        if not isinstance(boxes, (list, tuple)) or op.boxes == "boxes":
            self._refuse(op.boxes, boxes)
        for image, part in enumerate(boxes):
            if not isinstance(part, Tensor):
                self._refuse(f"{op.boxes}[{image}]", part)
            if part.dim() != 2 or part.shape[1] != op.columns:
                raise ValueError(
                    f"{op.forward}: {op.boxes}[{image}] must have shape (L, {op.columns}); "
                    f"got {tuple(part.shape)}"
                )
        return self._joined(boxes, given, maps)

    def _joined(
        self, parts: Sequence[Tensor], given: Arguments, maps: str
    ) -> tuple[Tensor, Tensor]:
        """Return the boxes of several images, one table each, as one table."""
        op = self.op
        if given[op.indices] is not None:
            raise ValueError(
                f"{op.indices} must not be given with {op.boxes} as one tensor per image"
            )
        shape = given["features"].shape if "features" in given else given["input_shape"]
        count = shape[0]
        if len(parts) != count:
            raise ValueError(
                f"{op.boxes} as a sequence must hold one tensor per image: got {len(parts)} for "
                f"{count}"
            )
        if not parts:
            like = given[maps]
            return like.new_empty((0, op.columns)), like.new_empty(0, dtype=torch.int64)
        numbers = [
            torch.full((part.shape[0],), image, dtype=torch.int64, device=part.device)
            for image, part in enumerate(parts)
        ]
        return torch.cat(list(parts)), torch.cat(numbers)

    def _refuse(self, name: str, value: Any) -> None:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(
            f"{self.op.forward}: {name} must be a tensor, as other arguments are; got {kind}"
        )


def placing(family: Family, given: Arguments) -> Settings:
    """Return what places bins and samples, pairs as tuples."""
    values = (given[name] for name in family.placing)
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant_settings(name: str, size: Any, values: Settings, filling: Any) -> Settings:
    return FAMILIES[name].settings(size, values, filling)


_cached_settings = functools.lru_cache(maxsize=1024, typed=True)(
    lambda name, size, values, filling: FAMILIES[name].settings(size, values, filling)
)


def settings(name: str, size: Any, values: Settings, filling: Any = 0.0) -> Settings:
    """Return what an operator of a family takes besides tensors, checked."""
    if isinstance(size, list):
        size = tuple(size)
    if any(isinstance(each, Tensor) for each in (size, *values, filling)):
        raise TypeError(f"{name}: only maps, boxes and indices may be tensors")
    if torch.compiler.is_compiling():
        return _constant_settings(name, size, values, filling)
    return _cached_settings(name, size, values, filling)


def to_nchw(maps: Tensor, order: str) -> Tensor:
    """Return maps as (N, C, H, W), without a copy."""
    return maps.permute(0, 3, 1, 2) if order == "NHWC" else maps


def from_nchw(maps: Tensor, order: str) -> Tensor:
    """Return (N, C, H, W) in the order of the caller."""
    return maps.permute(0, 2, 3, 1) if order == "NHWC" else maps


# ---- Functions with NumPy's signatures


def _public(compute: Callable[[Arguments], Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the name and the arguments of NumPy's."""
    signature = inspect.signature(like)
    parameters = signature.parameters.values()
    names = tuple(signature.parameters)
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    positional = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)

    def operation(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        surplus = len(args) > positional or any(name in kwargs for name in names[: len(args)])
        if surplus or len(given) != len(names) or any(name not in names for name in kwargs):
            signature.bind(*args, **kwargs)  # says what is wrong with them
        return compute(given)

    operation.__name__ = operation.__qualname__ = like.__name__
    operation.__module__ = "roipool.torch"
    operation.__doc__ = f"Compute :func:`roipool.{like.__name__}` of tensors, with derivatives."
    operation.__signature__ = signature  # type: ignore[attr-defined]
    return operation


def public_functions(namespace: Any) -> dict[str, Callable[..., Any]]:
    """Return a function of tensors for each public operation of a namespace."""
    found = {}
    for op in OPS.values():
        operation = Operation(op)
        both = (
            (op.forward, operation.forward),
            (op.backward, operation.backward),
            (op.backward_boxes, operation.backward_boxes),
        )
        for name, compute in both:
            if name is not None:
                found[name] = _public(compute, inspect.unwrap(namespace[name]))
    return found
