"""How many threads the CPU backend uses."""

from __future__ import annotations

import operator
import os

from roipool import _cpu
from roipool._environment import whole_number

# More than any machine has; OpenMP's own bookkeeping overflows the stack not far beyond.
MOST_THREADS = 1024

_chosen: int | None = None
_pool_was_used = False
_child_of_pool = False


def set_num_threads(n: int) -> None:
    """Set the number of threads for NumPy arrays, in this process.

    Results are the same bits for any number.

    Parameters
    ----------
    n : int
        From 1 to 1024.

    Raises
    ------
    TypeError
        If `n` is not an integer.
    ValueError
        If `n` is out of range.

    Examples
    --------
    >>> import roipool
    >>> before = roipool.get_num_threads()
    >>> roipool.set_num_threads(1)
    >>> roipool.get_num_threads()
    1
    >>> roipool.set_num_threads(before)
    """
    global _chosen
    try:
        if isinstance(n, bool):
            raise TypeError
        number = operator.index(n)
    except TypeError:
        raise TypeError(f"n must be an int, got {type(n).__name__}") from None
    if not 1 <= number <= MOST_THREADS:
        raise ValueError(f"n must be from 1 to {MOST_THREADS}, got {number}")
    _chosen = number


def get_num_threads() -> int:
    """Return the number of threads that a call on NumPy arrays may use.

    It is what :func:`set_num_threads` set, else the environment variable
    ``ROIPOOL_NUM_THREADS``, else OpenMP's own setting. It is 1 in a process that was forked after
    its parent had used more, as OpenMP's threads do not survive a fork, and in a build without
    OpenMP.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If ``ROIPOOL_NUM_THREADS`` is no positive whole number.

    Examples
    --------
    >>> import roipool
    >>> roipool.get_num_threads() >= 1
    True
    """
    return number_and_source()[0]


def number_and_source() -> tuple[int, str]:
    """Return :func:`get_num_threads` and in words where the number comes from."""
    if not _cpu.has_openmp():
        return 1, "a build without OpenMP"
    if _child_of_pool:
        return 1, "OpenMP's threads do not survive a fork"
    if _chosen:
        return _chosen, "set by set_num_threads"
    from_environment = whole_number("ROIPOOL_NUM_THREADS", 1, MOST_THREADS)
    if from_environment:
        return from_environment, "set by ROIPOOL_NUM_THREADS"
    return min(_cpu.openmp_threads(), MOST_THREADS), "OpenMP's own setting"


def threads_for_call() -> int:
    """Return :func:`get_num_threads`, and remember that a pool of threads now exists."""
    global _pool_was_used
    threads = get_num_threads()
    if threads > 1:
        _pool_was_used = True
    return threads


def _after_fork_in_child() -> None:
    global _child_of_pool
    _child_of_pool = _child_of_pool or _pool_was_used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


_cpu.ask_for_threads(threads_for_call)
