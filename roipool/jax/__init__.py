"""JAX: the operations of roipool for JAX arrays, with derivatives, under every transformation.

``roipool.roi_align(array, ...)`` and the others call the functions of this package, which have the
same arguments, `out` apart: also within ``jit``, ``grad``, ``vjp``, ``jvp``, ``vmap`` and
``checkpoint``.

Where values are not known, under ``jit`` for example, only shapes and dtypes are checked: a box
whose batch index names no image pools nothing and gets no gradient.
"""

from __future__ import annotations

from roipool.jax._operations import FUNCTIONS
from roipool.jax._transport import transport

globals().update(FUNCTIONS)

__all__ = [*FUNCTIONS, "transport"]
