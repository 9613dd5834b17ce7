"""Train on several processes, each with its own pictures and boxes: DistributedDataParallel.

``torchrun --standalone --nproc-per-node 2 examples/torch_ddp.py`` trains on two; without torchrun
the file starts it itself. Gradients are those of one process with all the pictures.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.distributed
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import roipool.torch.nn

STEPS, PICTURES = 5, 2  # of each process


class Head(torch.nn.Module):
    """A layer over the picture, ROI align, a layer over each box."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.pool = roipool.torch.nn.RoIAlign(output_size=3, sampling_ratio=2)
        self.scores = torch.nn.Linear(4 * 3 * 3, 1)

    def forward(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Return a score for each box."""
        return self.scores(self.pool(self.features(images).relu(), boxes).flatten(1))[:, 0]


def batch(step: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a process's pictures, boxes, and how bright each box is in its middle."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.rand(PICTURES, 1, 32, 32, generator=generator)
    corners = torch.randint(2, 20, (PICTURES, 2), generator=generator)
    boxes = torch.cat([torch.arange(PICTURES)[:, None], corners, corners + 8], 1)
    bright = torch.stack(
        [
            image[0, y : y + 8, x : x + 8].mean()
            for image, (x, y) in zip(images, corners, strict=True)
        ]
    )
    return images, boxes.float(), bright


def step_of(model: torch.nn.Module, images: Tensor, boxes: Tensor, bright: Tensor) -> Tensor:
    """Return the loss, with its gradients added up."""
    loss = (model(images, boxes) - bright).square().mean()
    loss.backward()
    return loss


def train(rank: int, processes: int) -> float:
    """Train; return how far parameters are from those of one process with all the pictures."""
    model, alone = DistributedDataParallel(Head()), Head()
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, alone)]
    for step in range(STEPS):
        for optimiser in optimisers:
            optimiser.zero_grad()
        step_of(model, *batch(step, rank))
        for other in range(processes):
            step_of(alone, *batch(step, other))
        for parameter in alone.parameters():
            parameter.grad /= processes
        for optimiser in optimisers:
            optimiser.step()
    both = zip(model.parameters(), alone.parameters(), strict=True)
    return max(float((ours - theirs).abs().max()) for ours, theirs in both)


def main() -> None:
    """Train as one of the processes, or start them."""
    if "RANK" not in os.environ:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        run = subprocess.run(
            [*torchrun, "--nproc-per-node=2", __file__], check=True, capture_output=True, text=True
        )
        print(run.stdout, end="")
        return
    torch.distributed.init_process_group("gloo")
    rank, processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    apart = train(rank, processes)
    torch.distributed.destroy_process_group()
    if rank == 0:
        print(f"{processes} processes, parameters at most {apart:.1e} from those of one process")
    if apart > 1e-6:
        raise SystemExit("the gradients are not those of all pictures")


if __name__ == "__main__":
    main()
