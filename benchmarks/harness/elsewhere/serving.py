"""Serving one library to another process: JSON through pipes, arrays through files."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .libraries import ELSEWHERE
from .task import load

__all__ = ["serve"]

# roipool is not installed in the environments of old libraries, so two of its files are run here.
_SHARED = Path(__file__).resolve().parents[3] / "roipool" / "cli" / "bench"
_CLOCK = runpy.run_path(str(_SHARED / "timing.py"))
_LIBRARIES = runpy.run_path(str(_SHARED / "libraries.py"))["LIBRARIES"]


def serve(name: str, threads: int) -> None:
    """Answer the other process, one line of JSON for each it sends."""
    # Libraries print; only answers may reach the other process.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**answer: Any) -> None:
        replies.write(json.dumps(answer) + "\n")
        replies.flush()

    try:
        library = {**_LIBRARIES, **ELSEWHERE}[name](threads)
    except ImportError as error:
        reply(absent=f"is not installed ({_first_line(error)})")
        return
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the reason for its absence
        reply(absent=f"could not be loaded: {_first_line(error)}")
        return
    reply(version=library.version)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                task = load(Path(request["prepare"]))
                call = library.prepare(task)
                call()
                _CLOCK["settle"]()
                reply(ready=True)
            elif "results" in request:
                for number, array in enumerate(library.arrays(task, call())):
                    np.save(str(Path(request["results"]) / f"result{number}.npy"), array)
                _CLOCK["settle"]()
                reply(ready=True)
            else:
                reply(seconds=_CLOCK["timed"](call, request["time"]))
        except Exception as error:  # noqa: BLE001 - libraries raise whatever they like
            reply(absent=f"refuses this: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "{}: {}".format(type(error).__name__, lines[0][:120] if lines else "no message")
