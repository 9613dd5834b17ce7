"""Standard output, whose reader may stop early."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

__all__ = ["abandon", "is_broken_pipe", "reader_may_stop"]


def is_broken_pipe(error: BaseException) -> bool:
    """Tell whether an error is that of writing to a pipe which nobody reads any more.

    Parameters
    ----------
    error : BaseException
        What writing to standard output raised.

    Returns
    -------
    bool
        On Windows the C library knows no such error and reports an invalid argument; errors of
        that number that concern a file name it.
    """
    if isinstance(error, BrokenPipeError):
        return True
    if os.name != "nt" or not isinstance(error, OSError):
        return False
    return error.errno == errno.EINVAL and error.filename is None


@contextlib.contextmanager
def reader_may_stop() -> Iterator[None]:
    """Leave the block quietly where the reader of standard output has stopped."""
    try:
        yield
    except OSError as error:
        if not is_broken_pipe(error):
            raise


def abandon() -> None:
    """Send what was not written yet nowhere: Python's last flush would print a traceback."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(devnull, sys.stdout.fileno())
        finally:
            os.close(devnull)
