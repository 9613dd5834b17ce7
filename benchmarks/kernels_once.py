"""Launches the kernels of workloads once, roipool's and torchvision's, for a profiler.

    ncu --csv --log-file profile.csv python benchmarks/kernels_once.py --workload W1a,W3b

It prints each workload and operation before its launches. scripts/gpu.sh chooses counters.
"""

from __future__ import annotations

import argparse

import cupy
from harness.implementations import open_ours, open_peer
from harness.workloads import changed, choose, task_of

from roipool.tools.libraries import LIBRARIES, Absent


def main() -> None:
    """Launch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", default="W1a,W3b,W4a")
    parser.add_argument("--boxes", type=int)
    parser.add_argument("--channels", type=int)
    arguments = parser.parse_args()
    peer = open_peer("torchvision", LIBRARIES["torchvision"], 1, "cuda", None)
    for workload in choose(arguments.workload):
        given = changed(workload, boxes=arguments.boxes, channels=arguments.channels)
        for backward, operation in enumerate(workload.operations):
            task = task_of(given, "float32", bool(backward))
            for implementation in (open_ours(1, False, cupy.asarray), peer):
                print(f"{workload.title}, {operation}, {implementation.name}", flush=True)
                try:
                    implementation.prepare(task)
                except Absent as reason:
                    print(reason)
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main()
