"""Functions of NumPy's namespace for JAX arrays: those that calls use on arrays of any library.

Arguments are NumPy's; arrays may be NumPy's, too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roipool.jax._transport import on_host

Array = Any

abs = jnp.abs  # noqa: A001 - NumPy's name
arange = jnp.arange
broadcast_to = jnp.broadcast_to
clip = jnp.clip
concatenate = jnp.concatenate
cumsum = jnp.cumsum
floor = jnp.floor
full_like = jnp.full_like
isfinite = jnp.isfinite
rint = jnp.rint
searchsorted = jnp.searchsorted
sqrt = jnp.sqrt
stack = jnp.stack
take_along_axis = jnp.take_along_axis
trunc = jnp.trunc
where = jnp.where
zeros = jnp.zeros


def argsort(values: Array, kind: str = "stable") -> Array:
    """Return `numpy.argsort` of one axis, which is stable."""
    return jnp.argsort(values, stable=True)


def ascontiguousarray(values: Array) -> Array:
    """Return the array: JAX decides how it lies in memory."""
    return values


def bincount(values: Array, minlength: int = 0) -> Array:
    """Return `numpy.bincount` of numbers below `minlength`."""
    return jnp.bincount(values, length=minlength)


def multiply(first: Array, second: Array, out: None = None) -> Array:
    """Return `numpy.multiply`."""
    return jnp.multiply(first, second)


# XLA's logarithms round otherwise than NumPy's. They choose levels of pyramids, which are whole
# numbers, so that they need no derivatives.


def log(values: Array) -> Array:
    """Return `numpy.log`, without a derivative."""
    return _on_host(np.log, values)


def log2(values: Array) -> Array:
    """Return `numpy.log2`, without a derivative."""
    return _on_host(np.log2, values)


def _on_host(function: Any, values: Array) -> Array:
    def compute(array: Any) -> Any:
        with np.errstate(all="ignore"):
            return [function(array)]

    kind = jax.ShapeDtypeStruct(values.shape, values.dtype)
    return on_host(compute, [kind], values, method="broadcast_all")[0]
