"""Ways in which an array's numbers can lie in memory, and other arrays that hold the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from _support.compare import Array


def every_second(array: Array) -> Array:
    """Return the array as a strided view with gaps."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def unaligned(array: Array) -> Array:
    """Return the array at an odd address."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def byte_swapped(array: Array) -> Array:
    """Return the array in the other byte order."""
    return array.byteswap().view(array.dtype.newbyteorder())


def read_only(array: Array) -> Array:
    """Return a copy that cannot be written to."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class Subclass(np.ndarray):
    """A subclass of ndarray."""


FORMS: dict[str, Callable[[Array], Array]] = {
    "every second": every_second,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "Fortran order": np.asfortranarray,
    "axes exchanged": lambda array: np.ascontiguousarray(array.swapaxes(0, -1)).swapaxes(0, -1),
    "byte-swapped": byte_swapped,
    "unaligned": unaligned,
    "read-only": read_only,
    "subclass": lambda array: array.copy().view(Subclass),
}
