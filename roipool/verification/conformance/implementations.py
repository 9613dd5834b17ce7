"""Somebody else's implementation of an operation, called as the random calls call roipool's own."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import numpy as np

import roipool
from roipool.verification.differential.operations import Operation

from . import worker
from .worker import Caller, Misbehaviour

Function: TypeAlias = Callable[..., Any]
SECONDS = 20.0  # that one call may take
MEMORY = 8 * 2**30  # bytes of address space that a process on the CPU may take
# What roipool's functions have beyond those that they are named after.
OWN_OPTIONS = ("return_argmax", "exact_gradient")
NEVER_PASSED = ("layout", "out")


class Calls(Protocol):
    """What calls a forward and a backward: `worker.Caller`, or `Process`."""

    def parameters(self, which: str) -> Sequence[str] | None:
        """Return the names of a function's parameters, or None if they cannot be known."""

    def call(
        self, which: str, given: Sequence[tuple[str, Any]], options: dict[str, Any]
    ) -> Sequence[Any]:
        """Call "forward" or "backward"."""


class Process:
    """Calls an implementation in another process: a crash there is an answer.

    Parameters
    ----------
    forward, backward : str
        ``package.module:function``; a backward may be "autograd", or None.
    arrays, device : str
        What the functions take.
    python : str
        The interpreter.
    seconds : float
        That a call may take.
    memory : int
        Bytes of address space that it may take; 0 for any.

    Raises
    ------
    ValueError
        If the implementation cannot be loaded.
    """

    def __init__(
        self,
        forward: str,
        backward: str | None = None,
        *,
        arrays: str = "numpy",
        device: str = "cpu",
        python: str = sys.executable,
        seconds: float = SECONDS,
        memory: int = MEMORY,
    ) -> None:
        self._first = {
            "forward": forward, "backward": backward, "arrays": arrays, "device": device,
            "folder": str(Path.cwd()), "memory": memory if device == "cpu" else 0,
        }  # fmt: skip
        self._python, self._seconds = python, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: BinaryIO | None = None
        self._parameters: dict[str, Sequence[str] | None] = {}
        self._start()

    def parameters(self, which: str) -> Sequence[str] | None:
        """Return the names of a function's parameters, or None if they cannot be known."""
        return self._parameters[which]

    def call(
        self, which: str, given: Sequence[tuple[str, Any]], options: dict[str, Any]
    ) -> Sequence[Any]:
        """Call "forward" or "backward"; a process that died is started again."""
        if self._process is None:
            self._start()
        answer = self._asked([which, list(given), options], self._seconds)
        if "kind" in answer:
            raise Misbehaviour(answer["kind"], answer["text"])
        return cast(Sequence[Any], answer["results"])

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.kill()
            process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _start(self) -> None:
        self._errors = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by `close`
        try:
            self._process = subprocess.Popen(
                [self._python, str(Path(worker.__file__))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.close()
            raise ValueError(f"{self._python}: {error.strerror}") from None
        threading.Thread(target=_end_with, args=(self._process,), daemon=True).start()
        try:
            answer = self._asked(self._first, max(self._seconds, 120.0))
        except Misbehaviour as error:
            raise ValueError(f"{self._first['forward']} {error}") from None
        if "unusable" in answer:
            self.close()
            raise ValueError(f"{self._first['forward']} cannot be used: {answer['unusable']}")
        self._parameters = answer["parameters"]

    def _asked(self, message: Any, seconds: float) -> Any:
        """Return the answer to a message; raise `Misbehaviour` if the process dies of it."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            worker.send(cast(BinaryIO, process.stdin), message)
            return worker.receive(cast(BinaryIO, process.stdout))
        except (EOFError, OSError):
            status = process.wait()
            said = self._last_words()
            self.close()
            if late.is_set():
                raise Misbehaviour("hangs", f"gives no answer in {seconds:g} s") from None
            raise Misbehaviour("crashes", f"crashes: {_ending(status)}{said}") from None
        except BaseException:  # Ctrl-C in the middle of an answer
            self.close()
            raise
        finally:
            timer.cancel()

    def _last_words(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        return f", after {said[-1][:120]!r}" if said else ""


def _end_with(process: subprocess.Popen[bytes]) -> None:
    """End the processes that a process started, once it ends: they hold its pipes open."""
    if not hasattr(os, "waitid"):
        return
    with contextlib.suppress(OSError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its number stays its own
        os.killpg(process.pid, signal.SIGKILL)


def _ending(status: int) -> str:
    if status >= 0:
        return f"the process exits with status {status}"
    with contextlib.suppress(ValueError):
        return f"the process ends by {signal.Signals(-status).name}"
    return f"the process ends by signal {-status}"


def calls_of(
    forward: Function | str,
    backward: Function | str | None = None,
    arrays: str = "numpy",
    device: str = "cpu",
    **process: Any,
) -> Calls:
    """Return what calls an implementation: one that is named, in a process of its own."""
    if arrays not in worker.ARRAYS:
        raise ValueError(f"arrays must be one of {', '.join(worker.ARRAYS)}, got {arrays!r}")
    if isinstance(forward, str):
        if backward is not None and not isinstance(backward, str):
            raise ValueError("backward must be named as the forward is, package.module:function")
        return Process(forward, backward, arrays=arrays, device=device, **process)
    if isinstance(backward, str) and backward != worker.AUTOGRAD:
        backward = worker.loaded(backward)
    for name, function in (("implementation", forward), ("backward", backward)):
        if not callable(function) and function not in (None, worker.AUTOGRAD):
            raise TypeError(f"{name} must be a function, got {type(function).__name__}")
    if forward is None:
        raise TypeError("implementation must be a function, got None")
    return Caller(forward, backward, arrays, device)


def close(calls: Calls) -> None:
    """End the process of an implementation, if it has one."""
    if isinstance(calls, Process):
        calls.close()


def library_of(
    calls: Calls, operation: Operation, fixed: Mapping[str, Any], semantics: str
) -> SimpleNamespace:
    """Return an implementation as an object that has an operation's functions, as roipool has.

    Its functions have the arguments of roipool's own. Those without a default are passed by
    position, the others by name; roipool's additions, and options that are `fixed`, only where the
    implementation has them.

    Raises
    ------
    ValueError
        If the implementation lacks an option that is not fixed.
    """
    library = SimpleNamespace()
    for which, path in (("forward", operation.forward), ("backward", operation.backward)):
        if path:
            *packages, name = path.split(".")
            place = library
            for package in packages:
                if not hasattr(place, package):
                    setattr(place, package, SimpleNamespace())
                place = getattr(place, package)
            setattr(place, name, _function(calls, which, path, operation, fixed, semantics))
    return library


def _function(
    calls: Calls,
    which: str,
    path: str,
    operation: Operation,
    fixed: Mapping[str, Any],
    semantics: str,
) -> Function:
    right: Any = roipool
    for part in path.split("."):
        right = getattr(right, part)
    signature = inspect.signature(right)
    required = [
        name for name, one in signature.parameters.items()
        if one.default is one.empty and one.kind is not one.KEYWORD_ONLY
    ]  # fmt: skip
    accepted = calls.parameters(which)
    canonical = {own: operation.names.get(own, own) for own in signature.parameters}
    droppable = {own for own, name in canonical.items() if name in {*fixed, *operation.fixed}}

    def takes(name: str) -> bool:
        if name in required or name in NEVER_PASSED:
            return False
        if name in OWN_OPTIONS:
            return accepted is not None and name in accepted
        return accepted is None or name not in droppable or name in accepted

    def call(**arguments: Any) -> tuple[Any, ...]:
        given = [(name, arguments[name]) for name in required if name in arguments]
        options = {name: value for name, value in arguments.items() if takes(name)}
        return tuple(np.asarray(one) for one in calls.call(which, given, options))

    needed = {own for own, name in canonical.items() if name in operation.options}
    needed -= {*droppable, *required}
    if accepted is not None and (lacking := sorted(needed - set(accepted))):
        raise ValueError(
            f"the {which} has no argument {lacking[0]!r}, which {semantics} has: "
            f"fix it, as in --option {lacking[0]}=VALUE or options={{{lacking[0]!r}: VALUE}}"
        )
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
