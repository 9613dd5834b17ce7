"""JAX: what serves its arrays, with derivatives, under every transformation.

``roipool.roi_align(array, ...)`` and every other function of ``roipool`` and ``roipool.compat``
take JAX arrays; :func:`call` computes them. They work within ``jit``, ``grad``, ``vjp``, ``jvp``,
``vmap`` and ``checkpoint``. Importing this package registers the handler that programs call: import
it before calling a loaded program of ``jax.export``.

Where values are not known, for example under ``jit``, only shapes and dtypes are checked: a box
whose batch index is out of range is pooled to 0 and has no gradient.
"""

from __future__ import annotations

from roipool.jax._calls import call as call
from roipool.jax._transport import register_if_known, transport

register_if_known()

__all__ = ["transport"]
