"""Requests in programs of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from roipool.jax._transport import Request

__all__ = ["request_of"]


def request_of(function: Callable[..., Any], *arrays: Any) -> Request:
    """Return the request of the one kernel that a function of arrays calls when it is traced."""
    program = jax.make_jaxpr(function)(*arrays)
    (found,) = (each.params["request"] for each in program.eqns if "request" in each.params)
    return found
