"""Times whole eager calls on a GPU: roipool's beside torchvision's, in one process.

``python benchmarks/gpu_calls.py --json calls.json`` prints for each call the microseconds in which
the host issues it while the GPU is busy, in which such calls follow one another, and in which one
of them ends for which the caller waits. The file is written after each call.

1,000 boxes on maps of a pyramid of 200 x 336 to 25 x 42 cells with 256 channels. `--device cpu` is
a rehearsal with less.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision
from harness.machine import facts
from torch import Tensor

import roipool
import roipool.torch

SCALES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
BUSY_CYCLES = 60_000_000  # about 30 ms: the queue is never empty
OVERRIDDEN = "MultiScaleRoIAlign, override_torchvision"
Call = Callable[[], Any]


class Times(NamedTuple):
    """Microseconds of a call, the least of all rounds."""

    issued: float
    following: float
    awaited: float


class Inputs(NamedTuple):
    """Maps of a pyramid, and boxes with their levels."""

    maps: list[Tensor]
    rois: Tensor
    levels: Tensor

    @property
    def parts(self) -> list[Tensor]:
        """The boxes of each level."""
        return [self.rois[self.levels == level].contiguous() for level in range(len(SCALES))]


def inputs(device: str, memory_format: torch.memory_format) -> Inputs:
    """Return random maps and boxes on a device."""
    generator = torch.Generator().manual_seed(0)
    count, channels = (1000, 256) if device == "cuda" else (20, 2)
    corners = torch.rand(count, 2, generator=generator) * torch.tensor([1100.0, 600.0])
    sides = torch.exp(torch.rand(count, 2, generator=generator) * 3 + 2.5)
    rois = torch.cat([torch.zeros(count, 1), corners, corners + sides], dim=1).to(device)
    maps = [
        torch.randn(1, channels, 200 >> k, 336 >> k, generator=generator)
        .to(device)
        .contiguous(memory_format=memory_format)
        for k in range(len(SCALES))
    ]
    return Inputs(maps, rois, roipool.assign_levels(rois, 2, 5))


def with_gradient(function: Callable[[list[Tensor]], Tensor], maps: list[Tensor]) -> Call:
    """Return a call with its gradient with respect to the maps."""
    leaves = [each.detach().requires_grad_() for each in maps]
    gradient = torch.ones_like(function(maps))
    return lambda: torch.autograd.grad(function(leaves), leaves, gradient)


def calls(of: Inputs) -> Iterator[tuple[str, Call, Call]]:
    """Yield names, calls of roipool, and calls of torchvision that give the same."""
    maps, rois, levels = of
    third, theirs, parts = maps[2:3], torchvision.ops, of.parts
    pairs: dict[str, tuple[Callable[[list[Tensor]], Tensor], Callable[[list[Tensor]], Tensor]]] = {
        "roi_align": (
            lambda given: roipool.roi_align(given[0], rois, 7, SCALES[2], 2, aligned=False),
            lambda given: theirs.roi_align(given[0], rois, 7, SCALES[2], 2),
        ),
        "roi_pool": (
            lambda given: roipool.roi_pool(given[0], rois, 7, SCALES[2]),
            lambda given: theirs.roi_pool(given[0], rois, 7, SCALES[2]),
        ),
    }
    for name, functions in pairs.items():
        own, other = functions
        yield name, lambda own=own: own(third), lambda other=other: other(third)
        yield f"{name} and gradient", with_gradient(own, third), with_gradient(other, third)

    def pyramid(given: list[Tensor]) -> Tensor:
        return roipool.multilevel_roi_align(given, rois, 7, SCALES, 2, levels=levels, aligned=False)

    def four(given: list[Tensor]) -> Tensor:
        each = zip(given, parts, SCALES, strict=True)
        return torch.cat([theirs.roi_align(one, part, 7, at, 2) for one, part, at in each])

    yield "four maps", lambda: pyramid(maps), lambda: four(maps)
    yield "four maps and gradient", with_gradient(pyramid, maps), with_gradient(four, maps)
    module = theirs.MultiScaleRoIAlign([*"0123"], 7, 2)
    named, boxes = {str(k): each for k, each in enumerate(maps)}, [rois[:, 1:]]

    def pooler() -> Any:
        return module(named, boxes, [(800, 1333)])

    yield OVERRIDDEN, pooler, pooler


def measured(call: Call, device: str) -> Times:
    """Return the times of a call."""
    is_gpu = device == "cuda"
    wait = torch.cuda.synchronize if is_gpu else lambda: None
    number, rounds = (30, 5) if is_gpu else (2, 1)
    for _ in range(5):
        call()
    least = [float("inf")] * 3
    for _ in range(rounds):
        wait()
        if is_gpu:
            torch.cuda._sleep(BUSY_CYCLES)
        begin = time.perf_counter()
        for _ in range(number):
            call()
        least[0] = min(least[0], time.perf_counter() - begin)
        wait()
        begin = time.perf_counter()
        for _ in range(number):
            call()
        wait()
        least[1] = min(least[1], time.perf_counter() - begin)
        begin = time.perf_counter()
        for _ in range(number):
            call()
            wait()
        least[2] = min(least[2], time.perf_counter() - begin)
    return Times(*(round(each / number * 1e6, 1) for each in least))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every number here")
    arguments = parser.parse_args()
    device = arguments.device
    name = torch.cuda.get_device_name() if device == "cuda" else "the host: a rehearsal"
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    report: dict[str, Any] = {"device": name, **versions, **facts(), "calls": []}
    print(f"{name}, {versions}\nmicroseconds: issued, one after the other, with a wait each")
    for layout, memory_format in (
        ("NCHW", torch.contiguous_format),
        ("channels last", torch.channels_last),
    ):
        for call, own, other in calls(inputs(device, memory_format)):
            times = {"torchvision": measured(other, device)}
            override = roipool.torch.override_torchvision()
            with override if call == OVERRIDDEN else nullcontext():
                times["roipool"] = measured(own, device)
            row = {"call": call, "layout": layout}
            report["calls"].append({**row, **{who: at._asdict() for who, at in times.items()}})
            print(f"{layout}, {call}: {times['roipool']}, torchvision {times['torchvision']}")
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
