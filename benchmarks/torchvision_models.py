"""Whole detectors of torchvision, with its own pooling and with roipool's, in turns in one process.

``python benchmarks/torchvision_models.py [--rounds N] [--size PIXELS]`` prints CPU time of one
thread, the best of several rounds: of a whole inference and a whole training step, and of the
pooling alone, forward and backward, on four levels. Weights are random; the work is the same.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import platform
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign

import roipool.torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from _support.detectors import DETECTORS, detector, pictures, targets

WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "torchvision": nullcontext,
    "roipool": roipool.torch.override_torchvision,
}


def cpu_times(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Return the best CPU time of some work each way, in seconds."""
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(rounds):
        for name, context in WAYS.items():
            with context():
                begin = time.process_time()
                work()
                best[name] = min(best[name], time.process_time() - begin)
    return best


def report(what: str, times: dict[str, float]) -> None:
    """Print one row."""
    theirs, ours = times["torchvision"] * 1e3, times["roipool"] * 1e3
    print(f"{what:40s} {theirs:9.1f} ms {ours:9.1f} ms  {theirs / ours:6.2f}x", flush=True)


def whole_models(rounds: int, size: int) -> None:
    """Measure inference and training steps."""
    height, width = size, size * 4 // 3
    images, truth = pictures(height, width), targets(height, width)
    for name in DETECTORS:
        model = detector(name, size, proposals=1000).eval()

        def infer(model: Any = model) -> None:
            with torch.no_grad():
                model(images)

        report(f"{name}, inference", cpu_times(infer, rounds))
        model.train()

        def step(model: Any = model) -> None:
            model.zero_grad()
            sum(model(images, [dict(target) for target in truth]).values()).backward()

        report(f"{name}, training step", cpu_times(step, rounds))


def pooling_alone(rounds: int) -> None:
    """Measure torchvision's pooling of four levels, 512 boxes, 256 channels."""
    generator = torch.Generator().manual_seed(0)
    maps: dict[str, Tensor] = {
        str(level): torch.randn(1, 256, 200 >> level, 304 >> level, requires_grad=True)
        for level in range(4)
    }
    first = torch.rand(512, 2, generator=generator) * torch.tensor([900.0, 600.0])
    sizes = torch.exp(torch.rand(512, 2, generator=generator) * 3.5 + 2.5)
    boxes = [torch.cat([first, first + sizes], 1)]
    pool = MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2)
    report(
        "pooling of 4 levels, forward",
        cpu_times(lambda: pool(maps, boxes, [(800, 1216)]), rounds),
    )
    pooled = {}
    for name, context in WAYS.items():
        with context():
            pooled[name] = pool(maps, boxes, [(800, 1216)])
    gradient = torch.ones_like(pooled["roipool"])

    def backward() -> None:
        torch.autograd.grad(pooled["roipool"], list(maps.values()), gradient, retain_graph=True)

    report("pooling of 4 levels, backward", cpu_times(backward, rounds))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=400, help="the shorter side of the picture")
    arguments = parser.parse_args()
    logging.getLogger("roipool").setLevel(logging.ERROR)  # the override is said at every turn
    torch.set_num_threads(1)
    roipool.set_num_threads(1)
    print(
        f"{platform.processor() or platform.machine()}, CPU time of one thread, torch "
        f"{torch.__version__}, torchvision {torchvision.__version__}, {datetime.date.today()}"
    )
    print(f"{'':40s} {'torchvision':>12s} {'roipool':>12s}")
    pooling_alone(arguments.rounds)
    whole_models(arguments.rounds, arguments.size)


if __name__ == "__main__":
    main()
