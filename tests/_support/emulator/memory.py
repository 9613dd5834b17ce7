"""Device memory: allocators, a pool that reuses freed memory, and memory of other libraries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]
Allocator = Callable[[int], Any]  # allocates bytes, as an object that NumPy can use as memory


def fresh(size: int) -> HostArray:
    """Allocate separate memory, guarded by a sanitizer."""
    return np.empty(size, np.uint8)


_allocator: Allocator = fresh


def get_allocator() -> Allocator:
    """Return the current allocator."""
    return _allocator


@contextmanager
def using_allocator(allocator: Allocator) -> Iterator[None]:
    """Use another allocator."""
    global _allocator
    saved, _allocator = _allocator, allocator
    try:
        yield
    finally:
        _allocator = saved


def allocated(shape: Any, dtype: Any) -> HostArray:
    """Return an array in memory of the current allocator, which is freed with its last view."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    size = int(np.prod(sizes, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.asarray(_allocator(size)) if size else fresh(0)
    return memory.view(dtype).reshape(shape)


def placed(values: HostArray) -> HostArray:
    """Return a copy in memory of the current allocator."""
    copy: HostArray = allocated(values.shape, values.dtype)
    copy[...] = values
    return copy


class Block:
    """Memory that returns to its pool."""

    def __init__(self, pool: Pool, memory: HostArray) -> None:
        self.pool, self.memory = pool, memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self.pool.free[self.memory.nbytes].append(self.memory)


class Pool:
    """A pool that reuses freed memory for the next array of the same size, like CuPy's."""

    def __init__(self) -> None:
        self.free: dict[int, list[HostArray]] = defaultdict(list)

    def malloc(self, size: int) -> Block:
        """Allocate memory."""
        free = self.free[size]
        return Block(self, free.pop() if free else fresh(size))

    def take_all(self) -> list[HostArray]:
        """Allocate all free memory."""
        return [
            np.asarray(self.malloc(size)) for size in list(self.free) for _ in self.free[size][:]
        ]


class UnownedMemory:
    """Memory that belongs to another owner."""

    def __init__(self, address: int, size: int, owner: object, device_id: int) -> None:
        self.address, self.size, self.owner = address, size, owner


class MemoryInside:
    """An address in such memory, like CuPy's MemoryPointer."""

    def __init__(self, memory: UnownedMemory, offset: int) -> None:
        self.memory, self.ptr, self.device_id = memory, memory.address + offset, 0
        self.__array_interface__ = {
            "data": (self.ptr, False),
            "shape": (memory.size - offset,),
            "typestr": "|u1",
            "version": 3,
        }
