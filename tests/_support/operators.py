"""The calls of operators that public functions make, to be made again by other means."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from roipool.torch._families import FAMILIES, VERBS, Family

from .tensors import TensorCase


class Request(NamedTuple):
    """A call of an operator."""

    family: Family
    verb: str
    args: tuple[Any, ...]

    @property
    def overload(self) -> Any:
        """The operator."""
        return self.family.overloads[self.verb]

    @property
    def boxes_at(self) -> int:
        """The place of the boxes among the arguments; batch indices follow."""
        return len(VERBS[self.verb].arrays)

    def replaced(self, place: int, value: Any) -> Request:
        """Return the call with another argument."""
        args = [*self.args]
        args[place] = value
        return self._replace(args=tuple(args))


class Recorder(TorchDispatchMode):
    """Records the first call of each verb."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Request] = {}
        self._known = {
            overload: (family, verb)
            for family in FAMILIES.values()
            for verb, overload in family.overloads.items()
        }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in self._known:
            family, verb = self._known[func]
            defaults = [one.default_value for one in func._schema.arguments[len(args) :]]
            self.requests.setdefault(verb, Request(family, verb, (*args, *defaults)))
        return func(*args, **(kwargs or {}))


def requests(case: TensorCase, features: Tensor, gradient: Tensor, *at: Tensor) -> list[Request]:
    """Return the calls of operators by the functions of a case, for boxes and batch indices."""
    more = {"return_argmax": True} if case.variant.has_argmax else {}
    with Recorder() as recorder, torch.no_grad():
        pooled = case.pool(features, *at, **more)
        argmax = pooled[1] if more else None
        case.gradient(gradient, argmax, *at, features.shape)
        if case.moves:
            case.box_gradient(gradient, features, *at)
    return [*recorder.requests.values()]


def forward_request(case: TensorCase, features: Tensor, *at: Tensor) -> Request:
    """Return the call of an operator by a forward."""
    with Recorder() as recorder, torch.no_grad():
        case.pool(features, *at)
    (found,) = recorder.requests.values()
    return found
