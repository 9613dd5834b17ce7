"""Times calls of libraries that bring their own thread pools.

This file uses only the standard library and runs on Python 3.8, since the benchmark harness of the
source tree also runs it in the environments of old libraries.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

__all__ = ["calls_per_turn", "settle", "timed"]

# Short calls are repeated so that a turn lasts about this long.
_TURN_SECONDS = 0.05
_REHEARSAL = 0.1  # seconds
_LONG = 2.0
# Thread pools count as idle if the process uses the CPU for less than a fifth of this sleep.
_NAP = 0.005
_MAX_NAPS = 400


def settle() -> None:
    """Wait until this process's threads are idle; thread pools spin for a while after a call."""
    for _ in range(_MAX_NAPS):
        before = time.process_time()
        time.sleep(_NAP)
        if time.process_time() - before < _NAP / 5:
            return


def calls_per_turn(seconds: float) -> int:
    """Return how often to repeat a call that takes `seconds` in a turn."""
    return math.ceil(_TURN_SECONDS / max(seconds, 1e-7))


def timed(call: Callable[[], Any], repeats: int) -> float:
    """Return the mean seconds of a call, over `repeats` calls.

    Threads of other libraries are idle. A tenth of a second of calls warms up: it wakes the
    library's threads, brings the processor to full speed, and makes memory available, since the
    host of a virtual machine reclaims unused memory, and returning it can cost more than the call.
    A long call needs no warm-up. Calls follow one another as in a training loop, warming up, too:
    the last result is in use until the next one is there, so that memory for two is needed.
    """
    settle()
    seconds = _seconds(call, 1)
    if seconds < _LONG:
        _rehearse(call)
        seconds = _seconds(call, repeats)
    settle()
    return seconds


def _rehearse(call: Callable[[], Any]) -> None:
    end = time.perf_counter() + _REHEARSAL
    result = call()
    while time.perf_counter() < end:
        result = call()
    del result


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        result = call()
    seconds = time.perf_counter() - start
    del result  # freeing the last result does not count
    return seconds / repeats
