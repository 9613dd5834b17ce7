"""Record calls with proxies of torch.fx among their arguments as calls of roipool's functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

import roipool


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the function that records calls of a public operation."""
    return functools.partial(_record, getattr(roipool, name))


def _record(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    proxies: list[torch.fx.Proxy] = []
    torch.fx.node.map_aggregate(
        (args, kwargs), lambda each: proxies.append(each) if _is_proxy(each) else None
    )
    return proxies[0].tracer.create_proxy("call_function", function, args, kwargs)


def _is_proxy(value: Any) -> bool:
    return isinstance(value, torch.fx.Proxy)
