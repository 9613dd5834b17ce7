"""Device memory and graphs: allocators, a pool that hands freed memory out again, and captures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]
Allocator = Callable[[int], Any]  # of bytes, to what NumPy takes for an array of them


def fresh(size: int) -> HostArray:
    """Allocate memory of its own, which a sanitizer guards."""
    return np.empty(size, np.uint8)


_allocator: Allocator = fresh


def get_allocator() -> Allocator:
    """Return what allocates now."""
    return _allocator


@contextmanager
def using_allocator(allocator: Allocator) -> Iterator[None]:
    """Allocate by another."""
    global _allocator
    saved, _allocator = _allocator, allocator
    try:
        yield
    finally:
        _allocator = saved


def allocated(shape: Any, dtype: Any) -> HostArray:
    """Return an array in memory of the current allocator; it is freed with the last view of it."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    count = int(np.prod(sizes, dtype=np.int64))
    memory = np.asarray(_allocator(count * np.dtype(dtype).itemsize))
    return memory.view(dtype).reshape(shape)


class Block:
    """Memory of a pool, to which it returns."""

    def __init__(self, pool: Pool, memory: HostArray) -> None:
        self.pool, self.memory = pool, memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self.pool.free[self.memory.nbytes].append(self.memory)


class Pool:
    """Memory that is used again for the next array of its size, as that of CuPy's pool is."""

    def __init__(self) -> None:
        self.free: dict[int, list[HostArray]] = defaultdict(list)

    def malloc(self, size: int) -> Block | HostArray:
        """Allocate memory."""
        if size == 0:
            return fresh(0)
        free = self.free[size]
        return Block(self, free.pop() if free else fresh(size))

    def take_all(self) -> list[HostArray]:
        """Allocate everything that is free."""
        return [
            np.asarray(self.malloc(size)) for size in list(self.free) for _ in self.free[size][:]
        ]


class Graph:
    """Launches that wait to be run, with addresses for arguments."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def launch(self) -> None:
        """Run them."""
        for work in self.work:
            work()


_graph: Graph | None = None


class Stream:
    """The only stream."""

    def is_capturing(self) -> bool:
        """Return whether launches go to a graph."""
        return _graph is not None


@contextmanager
def capturing() -> Iterator[Graph]:
    """Let kernels wait in a graph; CuPy's own work on arrays is done at once, and not again."""
    global _graph
    _graph = graph = Graph()
    try:
        yield graph
    finally:
        _graph = None


def enqueue(work: Callable[[], None]) -> None:
    """Do it, or let the graph do it."""
    if _graph is None:
        work()
    else:
        _graph.work.append(work)
