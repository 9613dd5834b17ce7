"""Record calls with proxies of torch.fx among their arguments as calls of roipool's functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record a call of a public function, which its module has with a choice of front ends."""
    public = getattr(sys.modules[function.__module__], function.__name__)
    proxies: list[torch.fx.Proxy] = []
    torch.fx.node.map_aggregate(
        (tuple(args), dict(kwargs)), lambda each: proxies.append(each) if _is_proxy(each) else None
    )
    return proxies[0].tracer.create_proxy("call_function", public, tuple(args), dict(kwargs))


def _is_proxy(value: Any) -> bool:
    return isinstance(value, torch.fx.Proxy)
