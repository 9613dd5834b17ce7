"""The parent's side of a process that serves a library or functions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from roipool.tools.libraries.library import Absent
from roipool.tools.libraries.protocol import receive, send, wait_for_greeting

__all__ = ["Ended", "Process"]

GREETING_SECONDS = 20.0  # time limit of an interpreter's start, before it imports any library


class Ended(Absent):
    """Raised if the process ended or did not answer in time; the message describes how."""

    def __init__(self, text: str, late: bool = False) -> None:
        super().__init__(text)
        self.late = late


class Process:
    """A process of ``python roipool/tools/libraries``.

    Parameters
    ----------
    python : str
        The interpreter, which needs NumPy but not roipool.
    first : dict
        The first message, which names a library or functions.
    environment : mapping, optional
        Environment variables; by default those of this process.
    seconds : float, optional
        Time limit of the answer to the first message, which includes importing the library.
    may_print : bool
        Whether to show its output on this process's standard error.

    Attributes
    ----------
    about : dict
        The answer to the first message.

    Raises
    ------
    Absent
        If the process cannot be started, or cannot load what `first` names.
    """

    def __init__(
        self,
        python: str,
        first: Any,
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
        may_print: bool = False,
    ) -> None:
        self._errors = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by `close`
        try:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if may_print else self._errors,
                start_new_session=True,
                env=environment,
            )
        except OSError as error:
            self._errors.close()
            raise Absent(f"could not be started: {python}: {error.strerror}") from None
        threading.Thread(target=_end_with, args=(self._process,), daemon=True).start()
        self._limited(
            lambda: wait_for_greeting(cast(BinaryIO, self._process.stdout)), GREETING_SECONDS
        )
        self.about = self.ask(first, seconds)
        if "unusable" in self.about:
            self.close()
            raise Absent(self.about["unusable"])

    def ask(self, message: Any, seconds: float | None = None) -> Any:
        """Return the answer to a message.

        Raises
        ------
        Ended
            If the process ends, or does not answer within `seconds`.
        """
        process = self._process

        def answer() -> Any:
            send(cast(BinaryIO, process.stdin), message)
            reply = receive(cast(BinaryIO, process.stdout))
            if not isinstance(reply, dict):
                raise ValueError("what it writes is no message")
            return reply

        return self._limited(answer, seconds)

    def _limited(self, exchange: Callable[[], Any], seconds: float | None) -> Any:
        """Return the result of an exchange with the process; end the process after a failure."""
        process, late = self._process, threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end) if seconds else None
        if timer:
            timer.start()
        try:
            return exchange()
        except (EOFError, OSError):
            status = process.wait()
            said = self._last_words()
            self.close()
            if late.is_set():
                raise Ended(f"gives no answer in {seconds:g} s", late=True) from None
            raise Ended(f"{_ending(status)}{said}") from None
        except ValueError as error:
            self.close()
            raise Ended(f"cannot be understood: {error}") from None
        except BaseException:  # Ctrl-C during an answer
            self.close()
            raise
        finally:
            if timer:
                timer.cancel()

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                cast(BinaryIO, stream).close()
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _last_words(self) -> str:
        """Return the most informative line of the process's standard error."""
        self._errors.seek(0)
        lines = self._errors.read()[-20_000:].decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        errors = [line for line in said if "error" in line.lower() or "what()" in line]
        return f", after {[*said, *errors][-1][:120]!r}" if said else ""


def _end_with(process: subprocess.Popen[bytes]) -> None:
    """End the children of a process once it ends, since they keep its pipes open."""
    if not hasattr(os, "waitid"):
        return
    with contextlib.suppress(OSError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # keeps the process id reserved
        os.killpg(process.pid, signal.SIGKILL)


def _ending(status: int) -> str:
    if status >= 0:
        return f"the process exits with status {status}"
    with contextlib.suppress(ValueError):
        return f"the process ends by {signal.Signals(-status).name}"
    return f"the process ends by signal {-status}"
