"""Streams and memory of another library, as CuPy takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .arithmetic import launches


class Stream:
    """A stream; work is launched on it between two lines among the launches."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        """Return the stream of an object that hands it over."""
        version, handle = stream.__cuda_stream__()
        assert version == 0
        return cls(handle)

    def __enter__(self) -> Stream:
        launches.append(f"begin of stream {self.handle}")
        return self

    def __exit__(self, *_: object) -> None:
        launches.append(f"end of stream {self.handle}")


class UnownedMemory:
    """Memory that its owner frees."""

    def __init__(self, address: int, size: int, owner: object, device_id: int) -> None:
        self.address, self.size, self.owner = address, size, owner


class MemoryInside:
    """A place in such memory: CuPy's MemoryPointer."""

    def __init__(self, memory: UnownedMemory, offset: int) -> None:
        self.memory, self.ptr = memory, memory.address + offset


Allocator = Callable[[int], MemoryInside]
_allocators: list[Allocator] = []


@contextmanager
def using_allocator(allocate: Allocator) -> Iterator[None]:
    """Take fresh memory from an allocator."""
    _allocators.append(allocate)
    try:
        yield
    finally:
        _allocators.pop()


def fresh(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Return memory of the innermost allocator, or NumPy's."""
    like = np.empty(shape, dtype)
    if not _allocators or not like.nbytes:
        return like
    place = _allocators[-1](like.nbytes)
    buffer = (ctypes.c_char * like.nbytes).from_address(place.ptr)
    buffer.owner = place  # type: ignore[attr-defined]  # as long as the array
    return np.frombuffer(buffer, like.dtype).reshape(like.shape)
