"""Serving one library to another process: JSON through pipes, arrays through files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from . import LIBRARIES, opened
from .library import Absent, first_line
from .task import load
from .timing import settle, timed

__all__ = ["serve"]


def serve(name: str, threads: int) -> None:
    """Answer the other process, one line of JSON for each it sends."""
    _limit_memory()
    # Libraries print; only answers may reach the other process.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**answer: Any) -> None:
        replies.write(json.dumps(answer) + "\n")
        replies.flush()

    try:
        library = opened(LIBRARIES[name], threads)
    except Absent as reason:
        reply(absent=str(reason))
        return
    reply(version=library.version)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                task = load(Path(request["prepare"]))
                call = library.prepare(task)
                call()
                settle()
                reply(ready=True)
            elif "results" in request:
                for number, array in enumerate(library.arrays(task, call())):
                    np.save(str(Path(request["results"]) / f"result{number}.npy"), array)
                settle()
                reply(ready=True)
            else:
                reply(seconds=timed(call, request["time"]))
        except Exception as error:  # noqa: BLE001 - libraries raise whatever they like
            reply(absent=f"refuses this: {first_line(error)}")


def _limit_memory() -> None:
    """Let this process have a quarter of the memory: of some libraries an odd box takes all.

    They then fail, where the system would have to end one process or another.
    """
    try:
        import resource

        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (there // 4, most))
    except (ImportError, ValueError, OSError):  # not on this system
        pass
