"""Times the first calls of a process on a GPU, with an empty and with a filled cache of kernels.

``python benchmarks/first_call.py --json first.json`` starts a process for each library and cache,
and prints the seconds of each call until the GPU has finished. The file is written after each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


def opened(library: str) -> tuple[Callable[[Any], Any], Callable[[], None]]:
    """Import a library; return functions that copy an array to the GPU, and that wait for it."""
    if library == "torch":
        import torch

        return lambda array: torch.from_numpy(array).cuda(), torch.cuda.synchronize
    import cupy

    return cupy.asarray, cupy.cuda.Device().synchronize


def calls(library: str, boxes: int, channels: int) -> None:
    """Print the seconds of each first call in this process, as lines of JSON."""
    begin = time.perf_counter()

    def lap(what: str) -> None:
        nonlocal begin
        wait()
        now = time.perf_counter()
        print(json.dumps({"what": what, "seconds": round(now - begin, 3)}), flush=True)
        begin = now

    move, wait = opened(library)
    shape = (1, channels, 200, 336)
    maps = move(np.ones(shape, np.float32))
    half_as_large = move(np.ones((1, channels, 100, 168), np.float32))
    channels_last = move(np.ones((1, 200, 336, channels), np.float16))
    rois = move(np.array([[0, 9, 9, 99, 80]] * boxes, np.float32))
    lap(f"import of {library}, first arrays")
    import roipool

    lap("import of roipool")
    pooled = roipool.roi_align(maps, rois, 7, 1 / 4, 2)
    lap("roi_align")
    roipool.roi_align(maps, rois, 7, 1 / 4, 2)
    lap("roi_align, again")
    roipool.roi_align_backward(pooled, rois, shape, 1 / 4, 2)
    lap("roi_align_backward")
    roipool.multilevel_roi_align([maps, half_as_large], rois, 7, (1 / 4, 1 / 8), 2)
    lap("multilevel_roi_align, two maps")
    roipool.roi_align(channels_last, rois, 7, 1 / 4, 2, layout="NHWC")
    lap("roi_align, float16 in NHWC")


def libraries() -> list[str]:
    """Return the libraries that can use the GPU."""
    if find_spec("torch") is None:
        return ["cupy"]
    import torch

    return ["cupy", "torch"] if torch.cuda.is_available() else ["cupy"]


def timed(command: list[str], folder: str) -> Iterator[dict[str, Any]]:
    """Yield the calls of a process whose kernels are cached in a folder, as they are done."""
    environment = {**os.environ, "CUPY_CACHE_DIR": folder}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout or ():
            yield json.loads(line)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")


def main() -> None:
    """Measure each library with both caches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--boxes", type=int, default=500)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every number here")
    parser.add_argument("--here", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        calls(arguments.here, arguments.boxes, arguments.channels)
        return
    rows: list[dict[str, Any]] = []
    size = ["--boxes", str(arguments.boxes), "--channels", str(arguments.channels)]
    for library in libraries():
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "filled"):
                command = [sys.executable, __file__, "--here", library, *size]
                for call in timed(command, folder):
                    rows.append({"library": library, "cache": cache, **call})
                    print(
                        f"{library}, {cache} cache, {call['what']}: {call['seconds']} s", flush=True
                    )
                    if arguments.json is not None:
                        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
