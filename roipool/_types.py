"""Types of what public functions take and return, for the programs of users.

A result is of the library of the first argument, which the type variable `ArrayT` says. Where
NumPy's result has another dtype, such as an argmax, an overload for NumPy arrays comes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class SupportsDLPack(Protocol):
    """An array of PyTorch, JAX, NumPy, CuPy, or of another library with DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsArrayInterface(Protocol):
    """An array in the host's memory."""

    @property
    def __array_interface__(self) -> Any: ...


class SupportsCudaArrayInterface(Protocol):
    """An array in a GPU's memory."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class SupportsDaskGraph(Protocol):
    """An array of Dask, which shares no memory: it has none yet."""

    def __dask_graph__(self) -> Any: ...


class TensorDType(Protocol):
    """An element type of PyTorch."""

    @property
    def is_floating_point(self) -> bool: ...

    @property
    def itemsize(self) -> int: ...


AnyArray: TypeAlias = (
    SupportsDLPack | SupportsArrayInterface | SupportsCudaArrayInterface | SupportsDaskGraph
)
ArrayT = TypeVar("ArrayT", bound=AnyArray)
ScalarT = TypeVar("ScalarT", bound=np.generic)

# Maps that are pooled to float32.
Integers: TypeAlias = NDArray[np.uint8] | NDArray[np.int8] | NDArray[np.uint16] | NDArray[np.int16]
Numbers: TypeAlias = AnyArray | ArrayLike
Boxes: TypeAlias = AnyArray | ArrayLike | Sequence[AnyArray]  # one array, or one for each image

PooledDType: TypeAlias = DTypeLike | TensorDType  # of pooled values

Mode: TypeAlias = Literal["avg", "max"]
Method: TypeAlias = Literal["bilinear", "nearest"]
Border: TypeAlias = Literal["constant", "edge"]
AngleUnit: TypeAlias = Literal["radians", "degrees"]
