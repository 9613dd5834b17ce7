"""The libraries that take part, and those of them that need a process of their own."""

from __future__ import annotations

from typing import ClassVar

from roipool.cli.bench.libraries import LIBRARIES, Library

__all__ = ["OWN_PROCESS", "PEERS"]


class _MXNet(Library):
    """What MXNet offers; `elsewhere.libraries` calls it."""

    modules = ("mxnet",)
    remarks: ClassVar[dict[str, str]] = {"float16": "it computes positions in float16"}


class _Paddle(Library):
    """What PaddlePaddle offers; `elsewhere.libraries` calls it."""

    modules = ("paddle",)


PEERS: dict[str, type[Library]] = {**LIBRARIES, "mxnet": _MXNet, "paddle": _Paddle}

# TensorFlow settles its number of threads when it is first used, so each number needs a process;
# the others do not live in one environment with present releases of NumPy.
OWN_PROCESS = ("tensorflow", "mxnet", "paddle")
