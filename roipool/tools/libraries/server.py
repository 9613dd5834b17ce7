"""Serves a library, or arbitrary functions, to another process."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import LIBRARIES, opened
from .functions import AUTOGRAD, MAX_MESSAGE, Caller, Misbehaviour, loaded
from .library import Absent, first_line
from .protocol import greet, receive, send
from .task import task_of
from .timing import settle, timed

__all__ = ["serve"]


def serve() -> None:
    """Answer requests until the other process closes the pipe."""
    # Libraries and functions may print; only answers may reach the other process.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    greet(replies)
    requests = sys.stdin.buffer
    first = receive(requests)
    try:
        _limit_memory(first["memory"])
        server: Any = _Library(first) if "library" in first else _Functions(first)
    except BaseException as error:  # noqa: BLE001 - modules may raise anything, or exit
        text = str(error) if isinstance(error, (Absent, ValueError)) else _described(error)
        send(replies, {"unusable": text[:MAX_MESSAGE]})
        return
    send(replies, server.about)
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(replies, server.answer(request))


class _Library:
    """Serves a library: prepares a task, then returns its results or times it."""

    def __init__(self, first: Any) -> None:
        self.library = opened(LIBRARIES[first["library"]], first["threads"])
        self.task: Any = None
        self.call: Any = None
        self.about = {"version": self.library.version}

    def answer(self, request: Any) -> Any:
        try:
            if "time" in request:
                return {"seconds": timed(self.call, request["time"])}
            if "task" in request:
                self.task = task_of(request["task"])
                self.call = self.library.prepare(self.task)
                self.call()
                settle()
                return {}
            results = self.library.arrays(self.task, self.call())
            settle()
            return {"results": list(results)}
        except Exception as error:  # noqa: BLE001 - libraries may raise anything
            return {"refused": first_line(error)}


class _Functions:
    """Serves an arbitrary forward and its gradients."""

    def __init__(self, first: Any) -> None:
        forward, backward, backward_boxes = (
            loaded(first[name], first["folder"])
            if first[name] not in (None, AUTOGRAD)
            else first[name]
            for name in ("forward", "backward", "backward_boxes")
        )
        arguments = [first[name] for name in ("arrays", "device", "may_write")]
        self.caller = Caller(forward, backward, backward_boxes, *arguments)
        names = self.caller.functions
        self.about = {
            "parameters": {name: self.caller.parameters(name) for name in names},
            "positions": self.caller.positions("forward"),
        }

    def answer(self, request: Any) -> Any:
        try:
            return {"results": self.caller.call(*request)}
        except Misbehaviour as error:
            return {"kind": error.kind, "text": str(error)}


def _described(error: BaseException) -> str:
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split()))


def _limit_memory(limit: int) -> None:
    """Limit the memory of this process, in bytes; 0 for no limit."""
    try:
        import resource

        if limit:
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    except (ImportError, ValueError, OSError):  # not supported by the system
        pass
