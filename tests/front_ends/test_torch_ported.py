"""A program written for a library of PyTorch runs with nothing changed but its import."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from _support.compare import assert_same_bits
from _support.tensors import to_numpy

from roipool import compat

BOXES = [[0, 4.5, 3, 90, 70], [1, 20, 30.25, 100, 85], [1, 7, 8, 30, 60]]

NETWORK = """
import torch
from torch import nn
from mmcv.ops import RoIAlign

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.neck = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.pool = RoIAlign(output_size=(5, 5), spatial_scale=1 / 8, sampling_ratio=2)
        self.scores = nn.Linear(8 * 5 * 5, 4)

    def forward(self, images, rois):
        self.maps = self.neck(images)
        self.maps.retain_grad()
        self.pooled = self.pool(self.maps, rois)
        self.pooled.retain_grad()
        return self.scores(self.pooled.flatten(1))

torch.manual_seed(0)
head = Head()
assert isinstance(head.pool, nn.Module) and head.pool in [*head.children()]
optimiser = torch.optim.SGD(head.parameters(), lr=0.5)
images, losses = torch.rand(2, 3, 12, 14), []
for step in range(60):
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(head(images, rois), torch.tensor([0, 1, 2]))
    loss.backward()
    losses.append(loss.item())
    optimiser.step()
"""


def test_a_layer_of_mmcv_in_a_network() -> None:
    theirs, ours = (f"from {name} import" for name in ("mmcv.ops", "roipool.compat.mmcv"))
    assert "roipool" not in NETWORK
    names: dict[str, Any] = {"torch": torch, "rois": torch.tensor(BOXES), "__name__": "program"}
    exec(NETWORK.replace(theirs, ours), names)
    head, losses = names["head"], names["losses"]
    assert losses[-1] < losses[0] / 2
    rois = np.array(BOXES, np.float32)
    maps, pooled = to_numpy(head.maps), to_numpy(head.pooled)
    options = {"spatial_scale": 1 / 8, "sampling_ratio": 2}
    assert_same_bits(pooled, compat.mmcv.roi_align(maps, rois, 5, **options))
    upstream = to_numpy(head.pooled.grad)
    expected = compat.mmcv.roi_align_backward(
        upstream,
        rois,
        input_shape=maps.shape,
        argmax_y=None,
        argmax_x=None,
        **options,
        pool_mode="avg",
        aligned=True,
    )
    assert_same_bits(to_numpy(head.maps.grad), expected)
