"""Streams, and graphs that are captured from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# What was launched, by name: kernels, and CuPy's own work on arrays.
launches: list[str] = []


class Stream:
    """A stream; there is one. Work on another library's lies between two lines among launches."""

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        """Return the stream of an object that hands it over."""
        version, handle = stream.__cuda_stream__()
        assert version == 0
        return cls(handle)

    def is_capturing(self) -> bool:
        """Return whether launches go to a graph."""
        return _graph is not None

    def __enter__(self) -> Stream:
        launches.append(f"begin of stream {self.handle}")
        return self

    def __exit__(self, *_: object) -> None:
        launches.append(f"end of stream {self.handle}")


def external_stream(handle: int, device: int = -1) -> Stream:
    """Return the stream of a handle, as CuPy's ``ExternalStream`` does."""
    del device
    stream = Stream()
    stream.handle = handle
    return stream


def get_current_stream(device: int = -1) -> Stream:
    """Return the stream."""
    assert device in (-1, 0)
    return Stream()


class Graph:
    """Launches that wait to be run, with addresses for arguments."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def launch(self) -> None:
        """Run them."""
        for work in self.work:
            work()


_graph: Graph | None = None


@contextmanager
def capturing() -> Iterator[Graph]:
    """Let kernels wait in a graph; CuPy's own work on arrays is done at once, too."""
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


def repeat_in_graph(result: Any, compute: Callable[[], Any]) -> None:
    """Let a graph write an array again."""
    if _graph is not None:
        enqueue(lambda: np.copyto(result, compute()))
