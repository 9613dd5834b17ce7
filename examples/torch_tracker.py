"""Refine a tracker's boxes by the gradient of their predicted overlap, on a CPU.

Trackers such as ATOM, DiMP and USOT predict the overlap (IoU) of a box with the target, and move
the box so that it grows. Its gradient goes through precise ROI pooling, whose own module compiles
for CUDA only. roipool's has the same arguments: instead of

    from ltr.external.PreciseRoIPooling.pytorch.prroi_pool import PrRoIPool2D

write

    from roipool.torch.nn import PrRoIPool2D

``python examples/torch_tracker.py`` trains a small head of that kind on pictures with one bright
target each, and refines boxes that are off. It prints their mean overlap before and after.
"""

from __future__ import annotations

import torch
from torch import Tensor

from roipool.torch.nn import PrRoIPool2D

SIDE, STRIDE = 64, 4


class OverlapHead(torch.nn.Module):
    """Predicts the overlap of boxes with a picture's target."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, stride=2, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3, stride=2, padding=1),
        )
        self.pool = PrRoIPool2D(5, 5, 1 / STRIDE)
        self.overlap = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(200, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def forward(self, pictures: Tensor, boxes: Tensor) -> Tensor:
        """Return the overlap of each of (K, 4) boxes x1, y1, x2, y2, K / N for each picture."""
        images = torch.arange(len(pictures)).repeat_interleave(len(boxes) // len(pictures))
        rois = torch.cat([images[:, None], boxes], dim=1)
        return self.overlap(self.pool(self.features(pictures), rois))[:, 0]


def targets(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return pictures with a bright target each, and its box."""
    pictures = torch.rand(count, 1, SIDE, SIDE, generator=generator) / 4
    sides = torch.randint(16, 28, (count, 2), generator=generator)
    corners = torch.randint(6, SIDE - 34, (count, 2), generator=generator)
    boxes = torch.cat([corners, corners + sides], dim=1)
    for picture, (x1, y1, x2, y2) in zip(pictures, boxes.tolist(), strict=True):
        picture[0, y1:y2, x1:x2] += 1
    return pictures, boxes.float()


def moved(boxes: Tensor, times: int, generator: torch.Generator) -> Tensor:
    """Return several boxes for each one, that are off by up to a third of its sides."""
    every = boxes.repeat_interleave(times, dim=0)
    sides = (every[:, 2:] - every[:, :2]).repeat(1, 2)
    return every + (torch.rand(every.shape, generator=generator) - 0.5) * sides * 2 / 3


def overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the overlap of each box with the other of its row."""
    top = torch.maximum(boxes[:, :2], others[:, :2])
    bottom = torch.minimum(boxes[:, 2:], others[:, 2:])
    common = (bottom - top).clamp(min=0).prod(dim=1)
    areas = [(each[:, 2:] - each[:, :2]).prod(dim=1) for each in (boxes, others)]
    return common / (areas[0] + areas[1] - common)


def train(head: OverlapHead, generator: torch.Generator, steps: int = 150) -> None:
    """Train the head on pictures with eight boxes each."""
    optimizer = torch.optim.Adam(head.parameters(), 2e-3)
    for _ in range(steps):
        pictures, boxes = targets(4, generator)
        candidates = moved(boxes, 8, generator)
        wanted = overlaps(candidates, boxes.repeat_interleave(8, dim=0))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(head(pictures, candidates), wanted).backward()
        optimizer.step()


def refined(head: OverlapHead, pictures: Tensor, boxes: Tensor, steps: int = 10) -> Tensor:
    """Return boxes that were moved along the gradient of their overlap."""
    for _ in range(steps):
        boxes = boxes.detach().requires_grad_()
        head(pictures, boxes).sum().backward()
        assert boxes.grad is not None
        sides = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
        boxes = boxes + 0.1 * boxes.grad * sides**2  # a step in parts of the sides, as ATOM's
    return boxes.detach()


def main() -> None:
    """Train, then refine boxes on new pictures."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    head = OverlapHead()
    train(head, generator)
    pictures, boxes = targets(32, generator)
    off = moved(boxes, 1, generator)
    before = overlaps(off, boxes).mean()
    after = overlaps(refined(head, pictures, off), boxes).mean()
    print(f"mean overlap before {before:.2f}, after {after:.2f}")
    assert after > before + 0.1


if __name__ == "__main__":
    main()
