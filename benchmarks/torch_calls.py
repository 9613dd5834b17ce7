"""Times tiny calls of roipool.torch and of torchvision, in turns in one process.

``python benchmarks/torch_calls.py`` prints the fastest of many rounds, in microseconds, and ratios.
"""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable

import torch
import torchvision
from torch import Tensor

import roipool

ROUNDS, CALLS = 60, 30


def best(candidates: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the shortest mean time of each candidate, in seconds."""
    shortest = dict.fromkeys(candidates, float("inf"))
    for _ in range(ROUNDS):
        for name, call in candidates.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            shortest[name] = min(shortest[name], (time.perf_counter() - begin) / CALLS)
    return shortest


def main() -> None:
    """Print one row each for the forward alone and for forward and backward."""
    torch.set_num_threads(1)
    roipool.set_num_threads(1)
    features, rois = torch.randn(1, 1, 4, 4), torch.tensor([[0, 0.5, 0.5, 2.5, 2.5]])
    leaf = features.clone().requires_grad_()
    gradient = torch.ones(1, 1, 2, 2)

    def theirs(maps: Tensor) -> Tensor:
        return torchvision.ops.roi_align(maps, rois, 2, 1.0, 2, True)

    def ours(maps: Tensor) -> Tensor:
        return roipool.roi_align(maps, rois, 2, 1.0, 2)

    times = best(
        {
            "torchvision, forward": lambda: theirs(features),
            "roipool, forward": lambda: ours(features),
            "torchvision, forward and backward": lambda: theirs(leaf).backward(gradient),
            "roipool, forward and backward": lambda: ours(leaf).backward(gradient),
        }
    )
    print(
        f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}, "
        f"torchvision {torchvision.__version__}, {datetime.date.today()}"
    )
    for what in ("forward", "forward and backward"):
        their_time, our_time = times[f"torchvision, {what}"], times[f"roipool, {what}"]
        print(
            f"{what:22s} torchvision {their_time * 1e6:6.1f} us  roipool {our_time * 1e6:6.1f} us"
            f"  ratio {our_time / their_time:.2f}"
        )


if __name__ == "__main__":
    main()
