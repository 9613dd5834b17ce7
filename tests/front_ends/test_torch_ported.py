"""Programs written for libraries of PyTorch run with nothing changed but their import."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _support.compare import assert_same_bits
from torch import Tensor

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
FUNCTION = """
from maskrcnn_benchmark.layers import ROIAlign, roi_align

maps = torch.rand(2, 6, 12, 14, generator=torch.manual_seed(1)).requires_grad_()
pooled = roi_align(maps, rois, (7, 7), 1.0 / 8, 2)
assert torch.equal(pooled, ROIAlign((7, 7), 1.0 / 8, 2)(maps, rois))
(pooled ** 2).sum().backward()
"""
APPLIED = """
from maskrcnn_benchmark.layers.roi_align import _ROIAlign

maps = torch.rand(2, 6, 12, 14, generator=torch.manual_seed(1)).requires_grad_()
pooled = _ROIAlign.apply(maps, rois, (7, 7), 1.0 / 8, 2)
(pooled ** 2).sum().backward()
"""
CROPS = """
from roi_align import CropAndResize, RoIAlign

maps = torch.rand(2, 6, 12, 14, generator=torch.manual_seed(2)).requires_grad_()
corners, images = rois[:, 1:] / 8, rois[:, 0].int()
crops = RoIAlign(7, 7, transform_fpcoor=True)(maps, corners, images)
spacing = torch.tensor([7.0, 7.0])
low, size = corners[:, :2], (corners[:, 2:] - corners[:, :2]) / spacing
last = torch.tensor([13.0, 11.0])
start = (low + size / 2 - 0.5) / last
end = start + size * 6 / last
boxes = torch.stack([start[:, 1], start[:, 0], end[:, 1], end[:, 0]], 1)
same = CropAndResize(7, 7)(maps, boxes, images)
(crops ** 2).sum().backward()
"""
IMPORTS = {
    NETWORK: ("mmcv.ops", "roipool.compat.mmcv"),
    FUNCTION: ("maskrcnn_benchmark.layers", "roipool.compat.maskrcnn_benchmark"),
    APPLIED: ("maskrcnn_benchmark.layers.roi_align", "roipool.compat.maskrcnn_benchmark"),
    CROPS: ("roi_align", "roipool.compat.roialign_pytorch"),
}


def ran(program: str) -> dict[str, Any]:
    """Run a program whose import alone is changed; return its names."""
    theirs, ours = (f"from {name} import" for name in IMPORTS[program])
    assert program.count(theirs) == 1
    names: dict[str, Any] = {"torch": torch, "rois": torch.tensor(BOXES), "__name__": "program"}
    exec(program.replace(theirs, ours), names)
    return names


def numbers(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


ROIS = np.array(BOXES, np.float32)


def test_a_layer_of_mmcv_in_a_network() -> None:
    found = ran(NETWORK)
    head, losses = found["head"], found["losses"]
    assert losses[-1] < losses[0] / 2
    maps, pooled = numbers(head.maps), numbers(head.pooled)
    options = {"spatial_scale": 1 / 8, "sampling_ratio": 2}
    assert_same_bits(pooled, compat.mmcv.roi_align(maps, ROIS, 5, **options))
    upstream = numbers(head.pooled.grad)
    expected = compat.mmcv.roi_align_backward(
        upstream,
        ROIS,
        input_shape=maps.shape,
        argmax_y=None,
        argmax_x=None,
        **options,
        pool_mode="avg",
        aligned=True,
    )
    assert_same_bits(numbers(head.maps.grad), expected)


@pytest.mark.parametrize("program", [FUNCTION, APPLIED], ids=["roi_align", "_ROIAlign.apply"])
def test_the_function_of_maskrcnn_benchmark(program: str) -> None:
    found = ran(program)
    maps = numbers(found["maps"])
    expected = compat.maskrcnn_benchmark.roi_align(maps, ROIS, (7, 7), 1 / 8, 2)
    assert_same_bits(numbers(found["pooled"]), expected)
    gradient = compat.maskrcnn_benchmark.roi_align_backward(
        2 * expected, ROIS, maps.shape, 1 / 8, 2
    )
    assert_same_bits(numbers(found["maps"].grad), gradient)


def test_the_layers_of_roialign_pytorch() -> None:
    found = ran(CROPS)
    maps, layer = numbers(found["maps"]), compat.roialign_pytorch.RoIAlign(7, 7)
    given = ROIS[:, 1:] / 8, ROIS[:, 0].astype(np.int32)
    expected = layer(maps, *given)
    assert_same_bits(numbers(found["crops"]), expected)
    assert_same_bits(numbers(found["maps"].grad), layer.backward(2 * expected, *given, maps.shape))
    torch.testing.assert_close(found["same"], found["crops"])


@pytest.mark.parametrize("program", IMPORTS)
def test_nothing_else_is_named(program: str) -> None:
    assert "roipool" not in program
