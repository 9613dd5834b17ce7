"""Times torchvision's detectors with its own pooling and with roipool's, in turns in one process.

``python benchmarks/torchvision_models.py [--rounds N] [--size PIXELS] [--models NAME ...]`` prints
the CPU time of one thread, the best of several rounds: of a whole inference and a whole training
step, and of the pooling alone, forward and backward, on four levels, for pictures of two sizes.
Weights are random, which does not affect the work.

The columns are torchvision; torchvision within ``override_torchvision``, which needs no change of
the model; and, for the pooling alone, ``roipool.torch.nn.MultiScaleRoIAlign``.

``--device cuda`` prints the time until the GPU has finished, also with autocast to float16.

Maps of more than 32 MB, such as the finest of the larger picture, are allocated at every backward,
and the system clears their pages. With torch's setting ``THP_MEM_ALLOC_ENABLE=1`` it uses fewer,
larger pages if possible.
"""

from __future__ import annotations

import argparse
import datetime
import json
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
from harness.machine import facts
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


class Report:
    """Measures works in turns, prints their times, and writes them to a file."""

    def __init__(self, device: str, rounds: int, file: Path | None) -> None:
        self.device, self._rounds, self._file = device, rounds, file
        self._rows: list[dict[str, Any]] = []

    def _clock(self) -> float:
        """Return the CPU time, or the time at which the GPU has finished; in seconds."""
        if self.device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def measure(self, what: str, works: Mapping[str, Work]) -> None:
        """Measure one row: the best time of each work."""
        best = dict.fromkeys(works, float("inf"))
        for _ in range(self._rounds):
            for name, work in works.items():
                with WAYS[name]():
                    begin = self._clock()
                    work()
                    best[name] = min(best[name], self._clock() - begin)
        cells = [f"{best[name] * 1e3:9.1f} ms" for name in WAYS if name in best]
        ratios = [f"{best['torchvision'] / best[name]:5.2f}x" for name in WAYS if name in best][1:]
        print(f"{what:52s}", *cells, *ratios, flush=True)
        self._rows.append({"what": what, "device": self.device, "seconds": best})
        if self._file is not None:
            self._file.write_text(json.dumps({**facts(), "rows": self._rows}, indent=2))


def on(device: str, value: Any) -> Any:
    """Return tensors in lists and dictionaries on a device."""
    if isinstance(value, dict):
        return {key: on(device, each) for key, each in value.items()}
    return [on(device, each) for each in value] if isinstance(value, list) else value.to(device)


def whole_models(report: Report, names: list[str], size: int) -> None:
    """Measure inference and training steps."""
    height, width = size, size * 4 // 3
    images, truth = on(report.device, [pictures(height, width), targets(height, width)])
    unchanged = ("torchvision", "override")
    for name in names:
        model = detector(name, size, proposals=1000, detections=DETECTIONS).to(report.device)

        def infer(model: Any = model) -> None:
            with torch.no_grad():
                model(images)

        def step(model: Any = model) -> None:
            model.zero_grad()
            sum(model(images, [dict(target) for target in truth]).values()).backward()

        for half in (False, True) if report.device == "cuda" else (False,):
            kind = ", float16" if half else ""
            with torch.autocast(report.device, torch.float16, enabled=half):
                model.eval()
                report.measure(f"{name}, inference{kind}", dict.fromkeys(unchanged, infer))
                model.train()
                report.measure(f"{name}, training step{kind}", dict.fromkeys(unchanged, step))


def pooling_alone(report: Report, height: int) -> None:
    """Measure the pooling of four levels with 512 boxes and 256 channels."""
    width = height * 4 // 3
    generator = torch.Generator().manual_seed(0)
    maps: dict[str, Tensor] = {
        str(level): torch.randn(
            1, 256, height // 4 >> level, width // 4 >> level, device=report.device
        ).requires_grad_()
        for level in range(4)
    }
    first = torch.rand(512, 2, generator=generator) * torch.tensor([0.75 * width, 0.75 * height])
    sizes = torch.exp(torch.rand(512, 2, generator=generator) * 3.5 + 2.5) * height / 800
    boxes = [torch.cat([first, first + sizes], 1).to(report.device)]
    options = (["0", "1", "2", "3"], 7, 2)
    theirs, ours = MultiScaleRoIAlign(*options), roipool.torch.nn.MultiScaleRoIAlign(*options)

    def pool(module: Any) -> Work:
        return lambda: module(maps, boxes, [(height, width)])

    forward = {"torchvision": pool(theirs), "override": pool(theirs), "one call": pool(ours)}
    what = f"pooling of 4 levels, {height} x {width} pixels"
    report.measure(f"{what}, forward", forward)

    def backward(name: str) -> Work:
        with WAYS[name]():
            pooled = forward[name]()
        gradient = torch.ones_like(pooled)
        leaves = [*maps.values()]
        return lambda: torch.autograd.grad(pooled, leaves, gradient, retain_graph=True)

    report.measure(f"{what}, backward", {name: backward(name) for name in WAYS})


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
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all numbers here")
    arguments = parser.parse_args()
    logging.getLogger("roipool").setLevel(logging.ERROR)  # the override logs a line in every turn
    torch.set_num_threads(1)
    roipool.set_num_threads(1)
    measured = f"{platform.processor() or platform.machine()}, CPU time of one thread"
    if arguments.device == "cuda":
        measured = torch.cuda.get_device_name()
    print(
        f"{measured}, torch {torch.__version__}, torchvision {torchvision.__version__}, "
        f"{datetime.date.today()}"
    )
    print(f"{'':52s}", *(f"{name:>12s}" for name in WAYS))
    report = Report(arguments.device, arguments.rounds, arguments.json)
    for height in (arguments.size, 2 * arguments.size):
        pooling_alone(report, height)
    whole_models(report, arguments.models, arguments.size)


if __name__ == "__main__":
    main()
