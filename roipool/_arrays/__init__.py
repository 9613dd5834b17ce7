"""Array libraries: one object each, which holds all that differs between them.

A library is a module here with the functions of :class:`Library`. An array's type chooses it, by
the name of the module that defines the type, so that no library is imported that the caller has
not imported.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np

from roipool._arrays import _numpy

Array: TypeAlias = Any  # of any library: functions say more to users with `ArrayT`


class Library(Protocol):
    """Functions that roipool needs for the arrays of a library. `dtype` is always a NumPy dtype."""

    # What fills its arrays: see ``roipool._engines.Engine``. None for a library whose arrays are
    # traced or differentiated: then `verbs` returns results.
    engine: Any
    verbs: Any  # what computes results of such a library: see ``roipool._engines.Verbs``
    array: str  # name of its arrays, for messages
    to_float32: str  # code behind an array that converts it to float32, for messages
    # Types that may stand beside an array of a library with `verbs`, in the place of another.
    beside: tuple[type, ...]

    def dtype(self, array: Any) -> np.dtype[Any]:
        """Return the dtype of an array as NumPy's."""

    def astype(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return an array in a dtype: the same one if it has it already."""

    def bytes_of(self, array: Any) -> Any:
        """Return an array of bool as uint8, without a copy where the library has a way."""

    def xp(self) -> ModuleType:
        """Return the library's namespace, whose functions are named as NumPy's."""

    def device(self, array: Any) -> AbstractContextManager[Any]:
        """Return a context in which the library works on the device of `array`."""

    def device_number(self, array: Any) -> int:
        """Return the device that holds `array`."""

    def check_address(self, name: str, array: Any) -> None:
        """Raise ValueError if a device cannot read an array's numbers where they lie."""

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Return a new, uninitialised array; MemoryError if it cannot be allocated."""

    def unfilled(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[Any, bool]:
        """Return a new array that may stay 0 in large parts, and whether it is 0 already."""

    def plain(self, array: Any) -> Any:
        """Return an array as its library's own type, which a subclass cannot misrepresent."""

    def readable(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return an array as engines read it: the same one where it is so already.

        On a host it is in C order at an aligned address; engines of GPUs take any strides.
        """

    def table(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return rows of numbers as engines read them, never the caller's own memory on a host."""

    def owned(self, array: Array) -> Any:
        """Return an array of NumPy's as one of the library's, where `verbs` take such."""

    def swapped_pairs(self, table: Any) -> Any:
        """Return a table of four columns with the two of each pair exchanged."""

    def checked_values(self, array: Any) -> Array | None:
        """Return an array's values on the host where they are to be checked, else None."""

    def boxes_and_images(self, rows: Any, images: int) -> tuple[Any, Any, int]:
        """Return the boxes and the batch indices of a table, and the first wrong row, or -1.

        Its `rows` are a batch index and a box, in float32 or float64. Wrong is an index that names
        none of so many images, where values are to be checked. Batch indices are None where they
        are to be checked later.
        """

    def host_copy(self, array: Any) -> Array:
        """Return an array's values on the host, even if that needs a copy."""

    def concatenate(self, parts: Sequence[Any], columns: int, dtype: Any) -> tuple[Any, Any]:
        """Return tables one below the other, and for each row the index of its table."""

    def may_share_memory(self, first: Any, second: Any) -> bool:
        """Return whether two arrays may overlap."""

    def store_rounded(self, values: Any, out: Any) -> None:
        """Write float32 values to an array of another type; both are in C order on a host.

        Integers are rounded half to even; what an integer cannot hold becomes its least or
        greatest, and NaN 0.
        """

    def can_be_filled(self, out: Any) -> bool:
        """Return whether engines can write to `out` as it is; read-only memory is a ValueError."""


class LazyLibrary(Library, Protocol):
    """A library of maps whose values are not known, beside which all other arrays are NumPy's."""

    def check_call(self, values: Mapping[str, Any]) -> None:
        """Check that of the arrays of a call, by name, the first are maps and no others."""


# Where the types of a library's arrays are defined, and the module that serves them.
_MODULES = {
    ("numpy", "ndarray"): "roipool._arrays._numpy",
    ("cupy", "ndarray"): "roipool._arrays._cupy",
    ("torch", "Tensor"): "roipool.torch._library",
    ("dask", "Array"): "roipool.dask._library",
    ("jax", "Tracer"): "roipool.jax._library",
    ("jaxlib", "ArrayImpl"): "roipool.jax._library",
    ("jax", "ArrayImpl"): "roipool.jax._library",
}
NUMPY: Library = _numpy


class _Libraries(dict[type, "Library | None"]):
    """The library of each type of array, and None for types that are no array's.

    A call asks several times: an entry costs no call of Python. Two threads may both fill it.
    """

    def __missing__(self, array_type: type) -> Library | None:
        for base in array_type.__mro__:
            module = _MODULES.get((base.__module__.partition(".")[0], base.__name__))
            if module is not None:
                library: Library = importlib.import_module(module)
                return self.setdefault(array_type, library)
        return self.setdefault(array_type, None)


# Sequences of maps are no array's; a compiler of programs, such as torch's, calls no `__missing__`.
LIBRARY_OF = _Libraries({np.ndarray: NUMPY, list: None, tuple: None})


_HOST_TYPES = frozenset({np.ndarray, int, float, list, tuple, str})


class _Thread(threading.local):
    """What calls of this thread take beside arrays."""

    takes_numbers = True  # lists of them as arrays, which other libraries' calls do not


THREAD = _Thread()


def is_lazy(library: Library | None) -> TypeGuard[LazyLibrary]:
    """Return whether the arrays of a library are maps whose values are not known."""
    return hasattr(library, "check_call")


def is_array(value: Any) -> bool:
    """Return whether a value is an array of a supported library."""
    return LIBRARY_OF[type(value)] is not None


def parts_of(value: Any) -> Sequence[Any]:
    """Return the items of a list or tuple, else the value as the only one."""
    return value if isinstance(value, (list, tuple)) else (value,)


def common_library(values: Mapping[str, Any]) -> tuple[Library, Any]:
    """Return the one library of all arrays among arguments, and one array that is on its device.

    Anything that is no array, such as a list of numbers, is NumPy's; None belongs to no library.

    Raises
    ------
    TypeError
        If the arrays are of two kinds; the message says which is where.
    ValueError
        If they are on two GPUs, or one is where a GPU cannot read it.
    """
    parts: list[Any] = []
    for value in values.values():
        if value is None:
            continue
        if LIBRARY_OF[type(value)] is None and isinstance(value, (list, tuple)):
            parts += value
        else:
            parts.append(value)
    if _HOST_TYPES.issuperset(map(type, parts)):  # the usual call on a host
        if not THREAD.takes_numbers and any(type(part) is not np.ndarray for part in parts):
            raise TypeError("arrays must be arrays, not lists of numbers")
        return NUMPY, None
    for part in parts:
        library = LIBRARY_OF[type(part)]
        if library is not None and library.verbs is not None:
            if values.get("out") is not None:
                raise TypeError(f"out must be None for a {library.array}")
            if is_lazy(library):
                library.check_call(values)
                return library, part
            return library, _checked_by(library, values)
    library = LIBRARY_OF[type(parts[0])] if parts else NUMPY
    if library is None or library is NUMPY:
        return _numpy_among(values), None
    place = library.device_number(parts[0])
    for part in parts[1:]:  # the usual call on a GPU: arrays there, and nothing else
        if LIBRARY_OF[type(part)] is not library or library.device_number(part) != place:
            return _numpy_among(values), None
    for name, value in values.items():
        if value is not None:
            for part in parts_of(value):
                library.check_address(name, part)
    return library, parts[0]


def _checked_by(library: Library, values: Mapping[str, Any]) -> Any:
    """Return the first array of a library that has verbs; check that all are its own."""
    place: tuple[str, Any] | None = None
    for argument, value in values.items():
        is_list = isinstance(value, (list, tuple))
        for number, part in enumerate(() if value is None else parts_of(value)):
            name = f"{argument}[{number}]" if is_list else argument
            if place is not None and isinstance(part, library.beside):
                continue
            if LIBRARY_OF[type(part)] is not library:
                raise TypeError(
                    f"{name} must be a {library.array}, as other arguments are; got {_kinds(part)}"
                )
            library.check_address(name, part)
            place = place or (name, part)
            own, expected = library.device_number(part), library.device_number(place[1])
            if own != expected:
                raise ValueError(
                    f"{name} must be on the device of {place[0]}, {expected}, got {own}"
                )
    return None if place is None else place[1]


def _numpy_among(values: Mapping[str, Any]) -> Library:
    """Return NumPy if no argument is on a GPU, else raise: not all are there, or on one."""
    places: dict[str, set[int]] = {}  # the GPUs of each argument's parts, -1 for those on none
    for name, value in values.items():
        if value is not None:
            parts = parts_of(value)
            refuse_masks(name, parts)
            refuse_other_arrays(parts, values)
            found = [(LIBRARY_OF[type(part)], part) for part in parts]
            places[name] = {
                lib.device_number(part) if lib not in (None, NUMPY) else -1 for lib, part in found
            }
    on_gpu = {name: numbers - {-1} for name, numbers in places.items() if numbers - {-1}}
    if not on_gpu:
        return NUMPY
    elsewhere = [name for name, numbers in places.items() if -1 in numbers]
    if elsewhere:
        raise TypeError(
            f"arrays must all be NumPy or all be CuPy: {', '.join(on_gpu)} is on the GPU, "
            f"{', '.join(elsewhere)} is not"
        )
    on_each = (f"{name} on {' and '.join(map(str, sorted(on)))}" for name, on in on_gpu.items())
    raise ValueError(f"arrays must all be on one GPU, got {', '.join(on_each)}")


def refuse_masks(name: str, parts: Sequence[Any]) -> None:
    """Raise TypeError if a part of an argument is a masked array: its mask would be lost."""
    for part in parts:
        is_subclass = isinstance(part, np.ndarray) and type(part) is not np.ndarray
        if is_subclass and isinstance(part, np.ma.MaskedArray):  # imported only then
            raise TypeError(
                f"{name} must be without a mask, got {type(part).__name__}: fill it, for example "
                f"{name}.filled(0)"
            )


_may_stand_beside: set[type] = {*_HOST_TYPES}  # a cache, too


def refuse_other_arrays(parts: Sequence[Any], values: Mapping[str, Any]) -> None:
    """Raise TypeError if one of an argument's parts is an array of a library with its own way."""
    for part in parts:
        kind = type(part)
        if kind in _may_stand_beside:
            continue
        is_array = hasattr(kind, "__dlpack__") or hasattr(kind, "__array_function__")
        if LIBRARY_OF[kind] is None and is_array:
            kinds = {name: _kinds(value) for name, value in values.items() if value is not None}
            first, *others = kinds.items()
            if all(kind == first[1] for _, kind in others):
                raise TypeError(f"{first[0]} must be a NumPy or CuPy array, got {first[1]}")
            listed = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
            raise TypeError(f"arrays must all be of one library: {listed}")
        _may_stand_beside.add(kind)


def _kinds(value: Any) -> str:
    """Return the name of an argument's type, or of those of the parts of a list."""
    kinds = dict.fromkeys(type(part) for part in parts_of(value) or (value,))
    return " and ".join(
        kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        for kind in kinds
    )
