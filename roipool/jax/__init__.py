"""JAX: the operations of roipool for JAX arrays, with derivatives, under every transformation.

``roipool.roi_align(array, ...)`` and the other operations call the functions of this package, which
have the same arguments except `out`; functions of ``roipool.compat`` take JAX arrays, too. They
work within ``jit``, ``grad``, ``vjp``, ``jvp``, ``vmap`` and ``checkpoint``.

Where values are not known, for example under ``jit``, only shapes and dtypes are checked: a box
whose batch index is out of range is pooled to 0 and has no gradient.
"""

from __future__ import annotations

from roipool.jax._calls import call
from roipool.jax._operations import FUNCTIONS
from roipool.jax._transport import register_if_known, transport

register_if_known()
globals().update(FUNCTIONS)

__all__ = [*FUNCTIONS, "call", "transport"]
