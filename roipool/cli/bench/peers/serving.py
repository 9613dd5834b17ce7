"""Opening a peer, timing its calls, and serving it to another process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .libraries import PEERS, Absent, Peer
from .task import Task, load

__all__ = ["opened", "prepared", "serve", "timed"]

_REHEARSAL = 0.1  # seconds
_LONG = 2.0
# A pool counts as asleep when the process computes for less than a fifth of this nap.
_NAP = 0.005
_MOST_NAPS = 400


def _settle() -> None:
    """Wait until this process's threads sleep: a pool spins for a while after a call."""
    for _ in range(_MOST_NAPS):
        before = time.process_time()
        time.sleep(_NAP)
        if time.process_time() - before < _NAP / 5:
            return


def timed(call: Callable[[], list[Any]], repeats: int) -> float:
    """Return the seconds of one call, of `repeats` in a row.

    The threads of others are asleep. A tenth of a second of calls goes before, so that its own are
    awake, the processor is at speed and memory is at hand: a virtual machine's host takes back what
    its guest has not used for a while, and giving it again can cost more than the call. A long call
    is its own rehearsal.
    """
    _settle()
    rehearsed = seconds = _seconds(call, 1)
    while rehearsed < _REHEARSAL:
        rehearsed += _seconds(call, 1)
    if seconds < _LONG:
        seconds = _seconds(call, repeats)
    _settle()
    return seconds


def _seconds(call: Callable[[], list[Any]], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        result = call()
    seconds = time.perf_counter() - start
    del result  # freeing what the last call returned is not part of it
    return seconds / repeats


def opened(name: str, threads: int, device: str = "cpu") -> Peer:
    """Import a peer; whatever goes wrong there is a reason for its absence."""
    try:
        return PEERS[name](threads, device)
    except ImportError as error:
        raise Absent(f"is not installed ({_first_line(error)})") from error
    except Absent:
        raise
    except Exception as error:
        raise Absent(f"could not be loaded: {_first_line(error)}") from error


def prepared(peer: Peer, task: Task) -> Callable[[], list[Any]]:
    """Make a peer ready and let it run once, so that what it refuses is known."""
    try:
        call = peer.prepare(task)
        call()
    except Absent:
        raise
    except Exception as error:
        raise Absent(f"refuses this: {_first_line(error)}") from error
    return call


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "{}: {}".format(type(error).__name__, lines[0][:120] if lines else "no message")


def serve(name: str, threads: int) -> None:
    """Answer the other process, one line of JSON for each it sends."""
    # Libraries print; only answers may reach the other process.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**answer: Any) -> None:
        replies.write(json.dumps(answer) + "\n")
        replies.flush()

    try:
        peer = opened(name, threads)
    except Absent as reason:
        reply(absent=str(reason))
        return
    reply(version=peer.version)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                task = load(Path(request["prepare"]))
                call = prepared(peer, task)
                _settle()
                reply(ready=True)
            elif "results" in request:
                for number, array in enumerate(peer.arrays(task, call())):
                    path = Path(request["results"]) / f"result{number}.npy"
                    np.save(str(path), array)
                _settle()
                reply(ready=True)
            else:
                reply(seconds=timed(call, request["time"]))
        except Absent as reason:
            reply(absent=str(reason))
