"""Compiled programs with `vmap` over gradients, for gradients in any memory format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from _support.tensors import maps
from torch import Tensor

import roipool
import roipool.torch

SHAPE = (2, 3, 7, 8)  # of the features
ROIS = torch.tensor([[0.0, 0, 0, 5, 5], [0, 1, 2, 3, 6], [1, 2, 0, 7, 4]], dtype=torch.float64)
LEVELS = torch.tensor([0, 1, 0])
FEATURES = maps(shape=SHAPE)
ARGMAX = roipool.roi_pool(FEATURES, ROIS, 2, return_argmax=True)[1]

# Functions of one call's gradient of pooled values, (3, 3, 2, 2).
BACKWARDS: dict[str, Callable[[Tensor], Any]] = {
    "average": lambda grad: roipool.roi_align_backward(grad, ROIS, SHAPE),
    "maximum": lambda grad: roipool.roi_pool_backward(grad, ARGMAX, ROIS, SHAPE),
    "boxes": lambda grad: roipool.roi_align_backward_rois(grad, FEATURES, ROIS),
    "pyramid": lambda grad: roipool.multilevel_roi_align_backward(
        grad, ROIS, [SHAPE, SHAPE], (1.0, 0.5), levels=LEVELS
    )[0],
}
# In which order memory has the axes of a batch of gradients.
ORDERS = {
    "as written": (0, 1, 2, 3, 4),
    "channels last": (0, 1, 3, 4, 2),
    "batch last": (1, 2, 3, 4, 0),
    "columns before rows": (0, 1, 2, 4, 3),
}


def stored(batch: Tensor, order: Sequence[int]) -> Tensor:
    """Return equal values with an order of axes in memory."""
    return batch.permute(*order).contiguous().permute([order.index(axis) for axis in range(5)])


def gradients() -> dict[str, Tensor]:
    batch = maps(shape=(4, 3, 3, 2, 2))
    found = {name: stored(batch, order) for name, order in ORDERS.items()}
    found["expanded"] = batch[:, :, :1].expand(batch.shape)
    found["every second"] = maps(shape=(4, 3, 3, 2, 4))[..., ::2]
    return found


@pytest.mark.parametrize(
    ("name", "dynamic"), [*((name, None) for name in BACKWARDS), ("average", True)]
)
def test_a_compiled_batch(name: str, dynamic: bool | None) -> None:
    """Within `vmap` the memory format of a tensor is not available."""
    backward = BACKWARDS[name]
    for how, batch in gradients().items():
        torch._dynamo.reset()
        program = torch.compile(
            torch.vmap(backward), backend="aot_eager", fullgraph=True, dynamic=dynamic
        )
        expected = torch.stack([backward(each) for each in batch])
        assert expected.any()
        for found in (program(batch), torch.vmap(backward)(batch)):
            torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13, msg=how)
