"""Measures the peak memory of a call in a new process, by the operating system's statistics."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import roipool
from harness import ours
from harness.workloads import Workload, changed, task_of

__all__ = ["peak_bytes"]

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_KEPT = "ROIPOOL_CACHE_MIB"


def peak_bytes(
    workload: Workload, dtype: str, backward: bool, threads: int, out_reuse: bool
) -> int | None:
    """Measure the growth of a process's peak resident memory by one call.

    A new process builds the arrays, makes a call with one box to load everything and start the
    threads, resets the kernel's record of the peak, and makes the call.

    Parameters
    ----------
    workload : Workload
        The workload.
    dtype : str
        Type of the features.
    backward : bool
        Whether to call the backward.
    threads : int
        Number of threads.
    out_reuse : bool
        Whether the output is allocated beforehand.

    Returns
    -------
    int or None
        Bytes, including a newly allocated output. None if the system keeps no such record; only
        Linux does.
    """
    if not _CLEAR.exists():
        return None
    with _keeping_nothing(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, workload, dtype, backward, threads, out_reuse).result()


@contextlib.contextmanager
def _keeping_nothing() -> Iterator[None]:
    """Disable the reuse of freed memory in a new process."""
    before = os.environ.get(_KEPT)
    os.environ[_KEPT] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KEPT]
        else:
            os.environ[_KEPT] = before


def _measure(
    workload: Workload, dtype: str, backward: bool, threads: int, out_reuse: bool
) -> int | None:
    roipool.set_num_threads(threads)
    ours.prepare(task_of(changed(workload, boxes=1), dtype, backward))()
    call = ours.prepare(task_of(workload, dtype, backward), out_reuse)
    with contextlib.suppress(AttributeError):  # only in glibc
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:  # forbidden in some containers
        return None
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM")
    del result
    return peak - before


def _status(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":"))
