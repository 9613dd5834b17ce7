"""Messages between two processes: JSON, followed by the bytes of arrays.

The serving process first sends a greeting: an environment may print at its start, before the
process can separate its answers from other output.
"""

from __future__ import annotations

import importlib
import json
import struct
from typing import Any, BinaryIO

import numpy as np

__all__ = ["dtype_of", "greet", "receive", "send", "wait_for_greeting"]

_GREETING = b"\0roipool serves\0"
_MAX_NOISE = 2**20  # most bytes before the greeting
_MAX_HEADER = 2**28  # bytes of a message without its arrays


def dtype_of(name: str) -> Any:
    """Return a dtype by its name, including bfloat16."""
    if name == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(name)


def greet(stream: BinaryIO) -> None:
    """Write the greeting, after which messages follow."""
    stream.write(_GREETING)
    stream.flush()


def wait_for_greeting(stream: BinaryIO) -> None:
    """Read until the greeting.

    Raises
    ------
    EOFError
        If the stream ends before the greeting.
    ValueError
        If too much other output comes first.
    """
    data = bytearray()
    while not data.endswith(_GREETING):
        if len(data) > _MAX_NOISE:
            raise ValueError("it prints without end when it starts")
        data += _exactly(stream, 1)


def send(stream: BinaryIO, message: Any) -> None:
    """Write a message; its values may include arrays and tuples."""
    arrays: list[Any] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value))
            return {"array": [value.dtype.name, list(value.shape)]}
        if isinstance(value, tuple):
            return {"tuple": [plain(item) for item in value]}
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return value.item() if isinstance(value, np.generic) else value

    header = json.dumps(plain(message)).encode()
    stream.write(struct.pack("<Q", len(header)) + header)
    for array in arrays:
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read a message.

    Raises
    ------
    EOFError
        If the stream ends before the end of a message.
    ValueError
        If the stream contains something else.
    """
    (size,) = struct.unpack("<Q", _exactly(stream, 8))
    if size > _MAX_HEADER:
        raise ValueError("what it writes is no message")

    def rich(value: Any) -> Any:
        if isinstance(value, list):
            return [rich(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "array" in value:
            dtype, shape = dtype_of(value["array"][0]), tuple(value["array"][1])
            count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            return np.frombuffer(_exactly(stream, count), dtype).reshape(shape)
        if "tuple" in value:
            return tuple(rich(item) for item in value["tuple"])
        return {name: rich(item) for name, item in value.items()}

    try:
        return rich(json.loads(_exactly(stream, size).decode()))
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, MemoryError):
        raise ValueError("what it writes is no message") from None


def _exactly(stream: BinaryIO, count: int) -> bytearray:
    """Read `count` bytes into a writable buffer."""
    data = bytearray()
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data
