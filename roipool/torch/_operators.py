"""The operators ``torch.ops.roipool``, which call the functions of ``_kernels``.

Their derivatives are in ``_autograd``, their batching rules in ``_batching``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad

from roipool._errors import with_name
from roipool.torch import _launches
from roipool.torch._cuda import CUDA
from roipool.torch._families import FAMILIES, VERBS, Family
from roipool.torch._kernels import KERNELS
from roipool.torch._memory import HOST, Bridge

LIBRARY = torch.library.Library("roipool", "DEF")

# A name of an operation for messages, or what finds it among the arguments of an operator.
NameOf = str | Callable[[Sequence[Any]], str]

# By torch's name of the device type.
BRIDGES: dict[str, Bridge] = {"CPU": HOST, "CUDA": CUDA}


# What returns the result of a computation's small calls on CUDA tensors, without a bridge; of
# others None.
SMALL_CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    KERNELS[verb][0]: getattr(_launches, verb)
    for verb in ("average", "average_backward", "maximum", "maximum_backward")
}


def on_device(bridge: Bridge, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes on the device of its first tensor or list of tensors."""
    general, small = _on_device(bridge, compute), SMALL_CALLS.get(compute)
    if small is None or bridge is HOST:
        return general

    def computed(*args: Any) -> Any:
        result = small(*args)
        return general(*args) if result is None else result

    return computed


def _on_device(bridge: Bridge, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for calls that are not small."""
    if bridge is HOST:
        return functools.partial(compute, bridge)

    def located(*args: Any) -> Any:
        first = next(each for each in args if isinstance(each, (torch.Tensor, list)))
        with bridge.on_device_of(first[0] if isinstance(first, list) else first):
            return compute(bridge, *args)

    return located


def kernel(bridge: Bridge, name: NameOf, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return such a function as a kernel for torch, whose errors begin with a name."""
    return naming_errors(name, on_device(bridge, compute))


def of_operator(family: Family, verb: str) -> Callable[..., Any]:
    """Return the function that computes a verb from a bridge and an operator's arguments."""
    compute, _ = KERNELS[verb]
    gives_maps = VERBS[verb].result == "features"

    def computed(bridge: Bridge, *args: Any) -> Any:
        results = compute(bridge, *family.from_operator(verb, args))
        return family.to_results(verb, results) if gives_maps else results

    return computed


def fake_of_operator(family: Family, verb: str) -> Callable[..., Any]:
    """Return the function that returns an operator's results without values."""
    _, fake = KERNELS[verb]
    return lambda *args: family.to_results(verb, fake(*family.from_operator(verb, args)))


class ForwardMode(threading.local):
    """Whether the caller computes the tangents of this thread's call of an operator."""

    computed = False


FORWARD_MODE = ForwardMode()


@contextmanager
def forward_mode_computed() -> Iterator[None]:
    """Call operators from a function that computes tangents itself."""
    before = FORWARD_MODE.computed
    FORWARD_MODE.computed = True
    try:
        yield
    finally:
        FORWARD_MODE.computed = before


def refuse_forward_mode(name: str) -> None:
    """Raise an error if torch would silently drop the tangents of an operator's arguments.

    That is in compiled and exported programs, which call operators themselves. No kernel can see
    whether its own arguments have tangents; forward mode of any thread is torch's for the process.
    """
    if not FORWARD_MODE.computed:
        raise NotImplementedError(
            f"{name}: no forward mode here: compiled and exported programs have none, nor have "
            "pasted masks"
        )


def naming_errors(name: NameOf, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose errors begin with a name, which its arguments may have."""

    def named(*args: Any) -> Any:
        if forward_ad._current_level >= 0:
            refuse_forward_mode(name if isinstance(name, str) else name(args))
        try:
            return function(*args)
        except (TypeError, ValueError) as error:
            raise with_name(error, name if isinstance(name, str) else name(args)) from None

    return named


def register(family: Family, verb: str, name: str) -> None:
    """Register an operator of a family."""
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    LIBRARY.define(family.schema(verb), tags=tags)
    operation = functools.partial(family.operation_among, verb)
    for device, bridge in BRIDGES.items():
        LIBRARY.impl(name, kernel(bridge, operation, of_operator(family, verb)), device)
        family.kernels[verb, device] = on_device(bridge, KERNELS[verb][0])
    fake_operator = naming_errors(operation, fake_of_operator(family, verb))
    torch.library.register_fake(f"roipool::{name}", fake_operator, lib=LIBRARY)
    family.overloads[verb] = getattr(torch.ops.roipool, name).default


for _family in FAMILIES.values():
    for _verb, _name in _family.names.items():
        register(_family, _verb, _name)
