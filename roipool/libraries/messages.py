"""Messages between two processes: JSON, followed by the bytes of arrays."""

from __future__ import annotations

import importlib
import json
import struct
from typing import Any, BinaryIO

import numpy as np

__all__ = ["dtype_of", "receive", "send"]


def dtype_of(name: str) -> Any:
    """Return the dtype of a name, which may be bfloat16."""
    if name == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(name)


def send(stream: BinaryIO, message: Any) -> None:
    """Write a message, whose values may be arrays and tuples, too."""
    arrays: list[Any] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value))
            return {"array": [value.dtype.name, list(value.shape)]}
        if isinstance(value, tuple):
            return {"tuple": [plain(one) for one in value]}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
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
        If there is none, or only a part of one.
    """
    (size,) = struct.unpack("<Q", _exactly(stream, 8))

    def rich(value: Any) -> Any:
        if isinstance(value, list):
            return [rich(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "array" in value:
            dtype, shape = dtype_of(value["array"][0]), tuple(value["array"][1])
            count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            return np.frombuffer(_exactly(stream, count), dtype).reshape(shape)
        if "tuple" in value:
            return tuple(rich(one) for one in value["tuple"])
        return {name: rich(one) for name, one in value.items()}

    return rich(json.loads(_exactly(stream, size).decode()))


def _exactly(stream: BinaryIO, count: int) -> bytearray:
    """Return so many bytes, which may be written to."""
    data = bytearray()
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data
