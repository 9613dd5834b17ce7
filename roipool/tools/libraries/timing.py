"""Times calls of libraries that bring their own thread pools.

It imports nothing but the standard library and keeps to what Python 3.8 understands: the benchmark
harness of the source tree runs this file in the environments of old libraries, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

__all__ = ["calls_per_turn", "settle", "timed"]

# Short calls are repeated until a turn lasts about this long.
_TURN_SECONDS = 0.01
_REHEARSAL = 0.1  # seconds
_LONG = 2.0
# A pool counts as asleep when the process computes for less than a fifth of this nap.
_NAP = 0.005
_MAX_NAPS = 400


def settle() -> None:
    """Wait until this process's threads sleep: a pool spins for a while after a call."""
    for _ in range(_MAX_NAPS):
        before = time.process_time()
        time.sleep(_NAP)
        if time.process_time() - before < _NAP / 5:
            return


def calls_per_turn(seconds: float) -> int:
    """Return how often a call that takes `seconds` is repeated in a turn."""
    return math.ceil(_TURN_SECONDS / max(seconds, 1e-7))


def timed(call: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of one call, of `repeats` in a row.

    The threads of others are asleep. A tenth of a second of calls goes before, so that its own are
    awake, the processor is at speed and memory is at hand: a virtual machine's host takes back what
    its guest has not used for a while, and giving it again can cost more than the call. A long call
    is its own rehearsal.
    """
    settle()
    rehearsed = seconds = _seconds(call, 1)
    while rehearsed < _REHEARSAL:
        rehearsed += _seconds(call, 1)
    if seconds < _LONG:
        seconds = _seconds(call, repeats)
    settle()
    return seconds


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        result = call()
    seconds = time.perf_counter() - start
    del result  # freeing what the last call returned is not part of it
    return seconds / repeats
