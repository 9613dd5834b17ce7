"""Streams, and graphs captured from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# Names of all launches: kernels, and CuPy's own operations on arrays.
launches: list[str] = []


class Stream:
    """The only stream; `launches` records the begin and end of another library's stream."""

    def __init__(self, handle: int = 0) -> None:
        self.handle = self.ptr = handle

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        """Return the stream of an object of another library."""
        version, handle = stream.__cuda_stream__()
        assert version == 0
        return cls(handle)

    def is_capturing(self) -> bool:
        """Return whether launches are captured."""
        return _graph is not None

    def __enter__(self) -> Stream:
        launches.append(f"begin of stream {self.handle}")
        return self

    def __exit__(self, *_: object) -> None:
        launches.append(f"end of stream {self.handle}")


def external_stream(handle: int, device: int = -1) -> Stream:
    """Return the stream of a handle, like CuPy's ``ExternalStream``."""
    del device
    return Stream(handle)


def get_current_stream(device: int = -1) -> Stream:
    """Return the stream: every device has one."""
    del device
    return Stream()


class Graph:
    """Captured launches, with addresses as arguments."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def launch(self) -> None:
        """Run the launches."""
        for work in self.work:
            work()


_graph: Graph | None = None


@contextmanager
def capturing() -> Iterator[Graph]:
    """Capture kernels in a graph; CuPy's own operations on arrays also run immediately."""
    global _graph
    _graph = graph = Graph()
    try:
        yield graph
    finally:
        _graph = None


def enqueue(work: Callable[[], None]) -> None:
    """Run a launch, or add it to the captured graph."""
    if _graph is None:
        work()
    else:
        _graph.work.append(work)


def repeat_in_graph(result: Any, compute: Callable[[], Any]) -> None:
    """Add the computation of an array to the captured graph."""
    if _graph is not None:
        enqueue(lambda: np.copyto(result, compute()))
