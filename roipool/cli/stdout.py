"""Standard output, whose reader may stop early."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

__all__ = ["abandon", "is_broken_pipe", "reader_may_stop"]


def is_broken_pipe(error: BaseException) -> bool:
    """Return whether an error means that the reader of a pipe has stopped.

    Returns
    -------
    bool
        On Windows the C library reports an invalid argument instead; errors of the same number
        that concern a file have a file name.
    """
    if isinstance(error, BrokenPipeError):
        return True
    if os.name != "nt" or not isinstance(error, OSError):
        return False
    return error.errno == errno.EINVAL and error.filename is None


@contextlib.contextmanager
def reader_may_stop() -> Iterator[None]:
    """Leave the block quietly if the reader of standard output has stopped."""
    try:
        yield
    except OSError as error:
        if not is_broken_pipe(error):
            raise


def abandon() -> None:
    """Discard unwritten output: Python's flush at exit would print a traceback."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(devnull, sys.stdout.fileno())
        finally:
            os.close(devnull)
