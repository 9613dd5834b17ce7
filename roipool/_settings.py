"""Settings, by functions and by environment variables, which are read once, at import."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from roipool import _cpu
from roipool._cpu_quota import cpu_quota
from roipool._errors import shown

MIB = 2**20
DEFAULT_CACHE_MIB = 128
MAX_CACHE_MIB = 2**20

# Larger results are in no processor's cache when they are read.
NON_TEMPORAL_BYTES = 2**24


class Environment(NamedTuple):
    """Values of environment variables; None for one that is unset or empty."""

    num_threads: int | None = None
    cache_mib: int | None = None
    instruction_set: str | None = None


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Return the settings among `variables`; a ValueError names the one that is wrong."""
    name = variables.get("ROIPOOL_ISA", "").strip() or None
    if name is not None and name not in _cpu.instruction_sets():
        raise ValueError(
            f"ROIPOOL_ISA is {shown(name)}; this machine has {', '.join(_cpu.instruction_sets())}"
        )
    return Environment(
        num_threads=_whole_number(variables, "ROIPOOL_NUM_THREADS", 1, _cpu.MAX_THREADS),
        cache_mib=_whole_number(variables, "ROIPOOL_CACHE_MIB", 0, MAX_CACHE_MIB),
        instruction_set=name,
    )


def _whole_number(
    variables: Mapping[str, str], variable: str, smallest: int, largest: int
) -> int | None:
    text = variables.get(variable, "").strip()
    if not text:
        return None
    # More digits than any allowed number has are not read: int() refuses thousands of them.
    digits = text.lstrip("0") or "0"
    if not text.isdecimal() or len(digits) > 9 or not smallest <= int(text) <= largest:
        raise ValueError(
            f"{variable} is {shown(text)}; it must be a whole number from {smallest} to {largest}"
        )
    return int(digits)


# The state; what calls need is in _cpu. Each name is bound anew as a whole, never changed in place:
# threads that read it while another sets it get the old value or the new one, so that no lock is
# needed, also without a GIL.
_threads_source = "OpenMP's own setting"
_debug = False
_environment = Environment()  # not bound again after the import
_environment_error: str | None = None  # nor this


def check_environment() -> None:
    """Raise ValueError if an environment variable of roipool's had a bad value at import.

    The import itself does not fail: the ``roipool`` program could not say in one line why.
    """
    if _environment_error is not None:
        raise ValueError(_environment_error)


# ---- Threads


def set_num_threads(n: int) -> None:
    """Set the number of threads for NumPy arrays, in this process.

    Results are bitwise identical for any number.

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
    global _threads_source
    _cpu.use_threads(_integer("n", n, 1, _cpu.MAX_THREADS))
    _threads_source = "set by set_num_threads"


def get_num_threads() -> int:
    """Return the number of threads that a call on NumPy arrays may use.

    It is what :func:`set_num_threads` set, else the environment variable
    ``ROIPOOL_NUM_THREADS``, else OpenMP's own setting; 1 in a build without OpenMP. Without
    ``OMP_NUM_THREADS``, OpenMP's setting counts the processors that the process may run on, and
    the processor quota of a container (Linux's control groups) bounds it. Forked processes may
    use as many threads as their parent.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If an environment variable of roipool's had a bad value when it was imported.

    Examples
    --------
    >>> import roipool
    >>> roipool.get_num_threads() >= 1
    True
    """
    check_environment()
    return _cpu.num_threads()


def threads_source() -> str:
    """Return in words where the number of threads comes from."""
    return _threads_source if _cpu.has_openmp() else "a build without OpenMP"


# ---- Memory


def set_cache_limit(mebibytes: int) -> None:
    """Set how much freed memory is cached for the next calls on NumPy arrays, in this process.

    The memory of results that were freed, and what a call needs beside its result, serves the
    next calls, because new memory costs more time than most pooling. It returns to the system
    when the limit is exceeded, the oldest first, or when fifty to ninety calls had no use for it. A
    process that makes no more calls keeps what is cached: see :func:`free_memory`. By default the
    limit is what the environment variable ``ROIPOOL_CACHE_MIB`` says, else 128 MiB.

    Parameters
    ----------
    mebibytes : int
        From 0, which caches nothing, to 1048576. What is beyond it is freed at once.

    Raises
    ------
    TypeError
        If `mebibytes` is not an integer.
    ValueError
        If `mebibytes` is out of range.

    Examples
    --------
    >>> import roipool
    >>> before = roipool.get_cache_limit()
    >>> roipool.set_cache_limit(32)
    >>> roipool.get_cache_limit()
    32
    >>> roipool.set_cache_limit(before)
    """
    _cpu.set_cache_limit(_integer("mebibytes", mebibytes, 0, MAX_CACHE_MIB) * MIB)


def get_cache_limit() -> int:
    """Return how much freed memory may be cached, in MiB: see :func:`set_cache_limit`.

    Returns
    -------
    int
        From 0 to 1048576.

    Examples
    --------
    >>> import roipool
    >>> roipool.get_cache_limit() >= 0
    True
    """
    return _cpu.cache_limit() // MIB


def free_memory() -> None:
    """Return the memory that is cached for the next calls on NumPy arrays to the system.

    Arrays that are in use keep theirs. The memory of CuPy arrays is CuPy's own:
    ``cupy.get_default_memory_pool().free_all_blocks()``.

    Examples
    --------
    >>> import roipool
    >>> roipool.free_memory()
    """
    _cpu.free_cached_memory()


# ---- Checks


def set_debug(enabled: bool) -> None:
    """Choose whether calls on CuPy arrays check the values of boxes and of argmax.

    Reading from a GPU waits for all work that is queued on it, so by default a call checks shapes
    and types only: a box whose batch index names no image pools nothing and gets no gradient.
    With debugging on, such a box is the same ``ValueError`` as for NumPy arrays, and each call
    waits. Calls on NumPy arrays always check.

    Parameters
    ----------
    enabled : bool
        True to check.

    Raises
    ------
    TypeError
        If `enabled` is not a bool.

    Examples
    --------
    >>> import roipool
    >>> roipool.set_debug(True)
    >>> roipool.set_debug(False)
    """
    global _debug
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool, got {shown(enabled)}")
    _debug = enabled


def debugging() -> bool:
    """Return the setting of :func:`set_debug`."""
    return _debug


def _integer(name: str, value: Any, smallest: int, largest: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {type(value).__name__}") from None
    if not smallest <= number <= largest:
        raise ValueError(f"{name} must be from {smallest} to {largest}, got {shown(number)}")
    return number


# ---- At import

_cpu.use_non_temporal_stores(NON_TEMPORAL_BYTES)
_cpu.set_cache_limit(DEFAULT_CACHE_MIB * MIB)
try:
    _environment = read_environment(os.environ)
except ValueError as error:
    _environment_error = str(error)
    _cpu.refuse_calls(_environment_error)
if not os.environ.get("OMP_NUM_THREADS", "").strip():
    _quota = cpu_quota()
    if _quota is not None and _quota < _cpu.openmp_threads():
        _cpu.bound_default_threads(_quota)
        _threads_source = "the processor quota of the control group"
if _environment.num_threads is not None:
    _cpu.use_threads(_environment.num_threads)
    _threads_source = "set by ROIPOOL_NUM_THREADS"
if _environment.cache_mib is not None:
    _cpu.set_cache_limit(_environment.cache_mib * MIB)
if _environment.instruction_set is not None:
    _cpu.use_instruction_set(_environment.instruction_set)
