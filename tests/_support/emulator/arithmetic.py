"""The part of CuPy's arithmetic that roipool uses outside kernels, on NumPy memory.

Operands are device arrays and numbers. Arrays in host memory are rejected, as in CuPy. Types are
promoted as in NumPy.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .memory import placed
from .streams import launches, repeat_in_graph


class Arithmetic:
    """Operators of an array with the NumPy array `_memory`."""

    _memory: np.ndarray[Any, Any]

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self._memory = memory

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return sums along an axis, or of everything."""
        return _apply(type(self), np.sum, self, axis=axis, keepdims=keepdims)


def _number(operand: Any) -> Any:
    if isinstance(operand, Arithmetic):
        return operand._memory
    if isinstance(operand, (bool, int, float, np.generic)):
        return operand
    raise TypeError(f"Unsupported type {type(operand)}")


def _apply(kind: type[Arithmetic], function: Any, /, *operands: Any, **options: Any) -> Any:
    launches.append(function.__name__)
    numbers = [_number(operand) for operand in operands]

    def compute() -> np.ndarray[Any, Any]:
        with np.errstate(all="ignore"):  # a GPU raises no floating-point errors
            return np.asarray(function(*numbers, **options))

    result = placed(compute())
    repeat_in_graph(result, compute)
    return kind(result)


def _operator(function: Any) -> Any:
    def method(self: Arithmetic, *other: Any) -> Any:
        return _apply(type(self), function, self, *other)

    return method


for _name in "lt le gt ge eq ne and_ or_ invert neg add sub mul truediv floordiv mod".split():
    setattr(Arithmetic, f"__{_name.rstrip('_')}__", _operator(getattr(operator, _name)))
Arithmetic.__hash__ = None  # type: ignore[assignment]


def functions(kind: type[Arithmetic]) -> dict[str, Any]:
    """Return the functions of the library with this class of arrays."""

    def computed(function: Any) -> Any:
        return lambda *operands, **options: _apply(kind, function, *operands, **options)

    def stack(arrays: Any, axis: int = 0) -> Any:
        launches.append("stack")
        return kind(np.stack([_number(array) for array in arrays], axis))

    def arange(*limits: int, dtype: Any = None) -> Any:
        launches.append("arange")
        return kind(np.arange(*limits, dtype=dtype))

    names = (
        "where trunc rint floor abs sqrt log log2 clip cumsum searchsorted take_along_axis argsort "
        "bincount"
    ).split()
    return {
        **{name: computed(getattr(np, name)) for name in names},
        "stack": stack,
        "arange": arange,
    }
