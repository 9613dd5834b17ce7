"""Times torchvision's detectors with its own pooling and with roipool's, in turns in one process.

``python benchmarks/torchvision_models.py [--rounds N] [--size PIXELS] [--models NAME ...]`` prints
the CPU time of one thread, the best of several rounds: of a whole inference and a whole training
step, and of the pooling alone, forward and backward, on four levels, for pictures of two sizes.
Weights are random, which does not affect the work.

The columns are torchvision; torchvision within ``override_torchvision``, which needs no change of
the model, but keeps torchvision's scattering of each level's results; and, for the pooling alone,
``roipool.torch.nn.MultiScaleRoIAlign``, one call over all levels.

Maps of more than 32 MB, such as the finest of the larger picture, are allocated at every backward,
and the system clears their pages. With torch's setting ``THP_MEM_ALLOC_ENABLE=1`` it uses fewer,
larger pages if possible.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign

import roipool.torch
import roipool.torch.nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from _support.detectors import DETECTORS, detector, pictures, targets

WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "torchvision": nullcontext,
    "override": roipool.torch.override_torchvision,
    "one call": nullcontext,
}
DETECTIONS = 100  # per picture, torchvision's default

Work = Callable[[], Any]


def cpu_times(works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Return the best CPU time of each kind of work, in seconds."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            with WAYS[name]():
                begin = time.process_time()
                work()
                best[name] = min(best[name], time.process_time() - begin)
    return best


def report(what: str, times: Mapping[str, float]) -> None:
    """Print one row."""
    cells = [f"{times[name] * 1e3:9.1f} ms" for name in WAYS if name in times]
    ratios = [f"{times['torchvision'] / times[name]:5.2f}x" for name in WAYS if name in times][1:]
    print(f"{what:52s}", *cells, *ratios, flush=True)


def whole_models(names: list[str], rounds: int, size: int) -> None:
    """Measure inference and training steps."""
    height, width = size, size * 4 // 3
    images, truth = pictures(height, width), targets(height, width)
    unchanged = ("torchvision", "override")
    for name in names:
        model = detector(name, size, proposals=1000, detections=DETECTIONS).eval()

        def infer(model: Any = model) -> None:
            with torch.no_grad():
                model(images)

        report(f"{name}, inference", cpu_times(dict.fromkeys(unchanged, infer), rounds))
        model.train()

        def step(model: Any = model) -> None:
            model.zero_grad()
            sum(model(images, [dict(target) for target in truth]).values()).backward()

        report(f"{name}, training step", cpu_times(dict.fromkeys(unchanged, step), rounds))


def pooling_alone(rounds: int, height: int) -> None:
    """Measure the pooling of four levels with 512 boxes and 256 channels."""
    width = height * 4 // 3
    generator = torch.Generator().manual_seed(0)
    maps: dict[str, Tensor] = {
        str(level): torch.randn(1, 256, height // 4 >> level, width // 4 >> level).requires_grad_()
        for level in range(4)
    }
    first = torch.rand(512, 2, generator=generator) * torch.tensor([0.75 * width, 0.75 * height])
    sizes = torch.exp(torch.rand(512, 2, generator=generator) * 3.5 + 2.5) * height / 800
    boxes = [torch.cat([first, first + sizes], 1)]
    options = (["0", "1", "2", "3"], 7, 2)
    theirs, ours = MultiScaleRoIAlign(*options), roipool.torch.nn.MultiScaleRoIAlign(*options)

    def pool(module: Any) -> Work:
        return lambda: module(maps, boxes, [(height, width)])

    forward = {"torchvision": pool(theirs), "override": pool(theirs), "one call": pool(ours)}
    what = f"pooling of 4 levels, {height} x {width} pixels"
    report(f"{what}, forward", cpu_times(forward, rounds))

    def backward(name: str) -> Work:
        with WAYS[name]():
            pooled = forward[name]()
        gradient = torch.ones_like(pooled)
        leaves = [*maps.values()]
        return lambda: torch.autograd.grad(pooled, leaves, gradient, retain_graph=True)

    report(f"{what}, backward", cpu_times({name: backward(name) for name in WAYS}, rounds))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=400, help="the shorter side of the picture")
    parser.add_argument(
        "--models",
        nargs="*",
        choices=[*DETECTORS],
        default=[*DETECTORS],
        metavar="NAME",
        help=f"which models (all): {', '.join(DETECTORS)}",
    )
    arguments = parser.parse_args()
    logging.getLogger("roipool").setLevel(logging.ERROR)  # the override logs a line in every turn
    torch.set_num_threads(1)
    roipool.set_num_threads(1)
    print(
        f"{platform.processor() or platform.machine()}, CPU time of one thread, torch "
        f"{torch.__version__}, torchvision {torchvision.__version__}, {datetime.date.today()}"
    )
    print(f"{'':52s}", *(f"{name:>12s}" for name in WAYS))
    for height in (arguments.size, 2 * arguments.size):
        pooling_alone(arguments.rounds, height)
    whole_models(arguments.models, arguments.rounds, arguments.size)


if __name__ == "__main__":
    main()
