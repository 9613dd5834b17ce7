"""Settings, by functions and by environment variables, which are read once, at import."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from roipool import _cpu
from roipool._errors import shown
from roipool._limits import cpu_quota, lendable_memory

MIB = 2**20
DEFAULT_CACHE_MIB = 128
MAX_CACHE_MIB = 2**20
LENT_SHARE = 1 / 8  # of the memory that the process may use

# A larger result has left the processor's caches before it is read.
NON_TEMPORAL_BYTES = 2**24


class Environment(NamedTuple):
    """Values of environment variables; None for one that is unset or empty."""

    num_threads: int | None = None
    cache_mib: int | None = None
    instruction_set: str | None = None
    cuda_cache: str | None = None


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Return the settings in `variables`; a ValueError names a variable with a bad value."""
    name = variables.get("ROIPOOL_ISA", "").strip() or None
    if name is not None and name not in _cpu.instruction_sets():
        raise ValueError(
            f"ROIPOOL_ISA is {shown(name)}; this machine has {', '.join(_cpu.instruction_sets())}"
        )
    return Environment(
        num_threads=_whole_number(variables, "ROIPOOL_NUM_THREADS", 1, _cpu.MAX_THREADS),
        cache_mib=_whole_number(variables, "ROIPOOL_CACHE_MIB", 0, MAX_CACHE_MIB),
        instruction_set=name,
        cuda_cache=variables.get("ROIPOOL_CUDA_CACHE_DIR") or None,
    )


def _whole_number(
    variables: Mapping[str, str], variable: str, smallest: int, largest: int
) -> int | None:
    text = variables.get(variable, "").strip()
    if not text:
        return None
    # Longer numbers are out of range anyway, and int() raises an error for thousands of digits.
    digits = text.lstrip("0") or "0"
    if not text.isdecimal() or len(digits) > 9 or not smallest <= int(text) <= largest:
        raise ValueError(
            f"{variable} is {shown(text)}; it must be a whole number from {smallest} to {largest}"
        )
    return int(digits)


# The settings of which calls need no value; _cpu holds the others. Each name is rebound, never
# changed in place: a thread that reads it while another sets it gets the old or the new value, so
# that no lock is needed, even without a GIL.
_threads_source = "OpenMP's own setting"
_debug = False
_environment = Environment()  # not rebound after the import
_environment_error: str | None = None  # not rebound after the import


def check_environment() -> None:
    """Raise ValueError if one of roipool's environment variables had a bad value at import.

    The import itself does not fail, so that the ``roipool`` program can print a one-line error.
    """
    if _environment_error is not None:
        raise ValueError(_environment_error)


def cuda_cache() -> str | None:
    """Return the folder of machine code for GPUs, if the environment names one."""
    return _environment.cuda_cache


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

    The number set by :func:`set_num_threads`, or else by the environment variable
    ``ROIPOOL_NUM_THREADS``, or else OpenMP's own setting; 1 in a build without OpenMP. Without
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
        If one of roipool's environment variables had a bad value at import.

    Examples
    --------
    >>> import roipool
    >>> roipool.get_num_threads() >= 1
    True
    """
    check_environment()
    return _cpu.num_threads()


def threads_source() -> str:
    """Return the source of the number of threads, in words."""
    return _threads_source if _cpu.has_openmp() else "a build without OpenMP"


# ---- Memory


def set_cache_limit(mebibytes: int) -> None:
    """Set how much freed memory is cached for the next calls on NumPy arrays, in this process.

    The next calls reuse the memory of freed results and the work memory of earlier calls, because
    allocating new memory takes longer than most pooling. Cached memory returns to the system when
    the limit is exceeded, the oldest first, or when fifty to ninety calls have not used it. A
    process that makes no more calls keeps its cache: see :func:`free_memory`. The default limit is
    the value of the environment variable ``ROIPOOL_CACHE_MIB``, or else 128 MiB.

    On Linux, blocks of 2 MiB and more stay in the cache beyond the limit, up to an eighth of the
    memory that the process or its container has, but are lent to the system: it takes them as soon
    as any process needs memory (``MADV_FREE``). Until then, they count as resident memory.

    Parameters
    ----------
    mebibytes : int
        From 0, which caches and lends nothing, to 1048576. Memory beyond the limit is lent or freed
        at once.

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

    Arrays in use are not affected. CuPy manages the memory of its own arrays:
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
_cpu.set_lent_limit(int(LENT_SHARE * lendable_memory()))
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
