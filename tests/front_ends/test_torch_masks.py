"""Masks as tensors: values are those of NumPy arrays, and gradients those of grid_sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim
from torch.nn.functional import grid_sample

import roipool
from roipool.compat import torchvision

SIZE = (9, 11)


def masks_and_boxes(count: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(count, 5, 6, dtype=torch.float64, generator=generator)
    corners = torch.rand(count, 2, 2, dtype=torch.float64, generator=generator) * 14 - 2
    return masks, corners.sort(dim=1).values.reshape(count, 4)


def sampled(masks: Tensor, boxes: Tensor) -> Tensor:
    """Return the published rule, as mmdetection computes it on a GPU."""
    rows, columns = (torch.arange(side, dtype=masks.dtype) + 0.5 for side in SIZE)
    x1, y1, x2, y2 = boxes[:, :, None].unbind(1)
    x = ((columns - x1) / (x2 - x1) * 2 - 1)[:, None].expand(-1, SIZE[0], -1)
    y = ((rows - y1) / (y2 - y1) * 2 - 1)[:, :, None].expand(-1, -1, SIZE[1])
    return grid_sample(masks[:, None], torch.stack([x, y], 3), align_corners=False)[:, 0]


def test_gradients_are_those_of_grid_sample() -> None:
    given = [each.requires_grad_() for each in masks_and_boxes()]
    other = [each.requires_grad_() for each in masks_and_boxes()]
    weights = torch.rand(3, *SIZE, dtype=torch.float64)
    (roipool.paste_masks(*given, SIZE) * weights).sum().backward()
    (sampled(*other) * weights).sum().backward()
    for own, expected in zip(given, other, strict=True):
        torch.testing.assert_close(own.grad, expected.grad, rtol=1e-9, atol=1e-9)


class Pasting(torch.nn.Module):
    """A program that pastes."""

    def forward(self, masks: Tensor, boxes: Tensor) -> Any:
        return roipool.paste_masks(masks, boxes, SIZE)


def test_recorded_programs() -> None:
    masks, boxes = masks_and_boxes()
    expected, module = roipool.paste_masks(masks, boxes, SIZE), Pasting()
    exported = torch.export.export(module, (masks, boxes)).module()
    for program in (exported, torch.fx.symbolic_trace(module)):
        torch.testing.assert_close(program(masks, boxes), expected, rtol=0, atol=0)


def test_a_compiled_program_takes_any_number_of_masks() -> None:
    compiled = torch.compile(Pasting(), fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (3, 2):
        masks, boxes = masks_and_boxes(count)
        expected = roipool.paste_masks(masks, boxes, SIZE)
        torch.testing.assert_close(compiled(masks, boxes), expected, rtol=0, atol=0)


def test_programs_take_any_size() -> None:
    """Of pictures, as a number of the program, and of masks."""

    def pasted(masks: Tensor, boxes: Tensor, rows: int, columns: int) -> Tensor:
        return roipool.paste_masks(masks, boxes, (rows, columns))

    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(pasted, fullgraph=True, dynamic=True, backend=counter)
    for size in (SIZE, (7, 20)):
        masks, boxes = masks_and_boxes()
        expected = roipool.paste_masks(masks, boxes, size)
        torch.testing.assert_close(compiled(masks, boxes, *size), expected, rtol=0, atol=0)
    assert counter.frame_count == 1


@pytest.mark.parametrize("like_torchvision", [False, True])
def test_exported_programs_take_any_number_of_masks(like_torchvision: bool) -> None:
    class Program(torch.nn.Module):
        def forward(self, masks: Tensor, boxes: Tensor) -> Any:
            if like_torchvision:
                return torchvision.paste_masks_in_image(masks[:, None], boxes, SIZE)
            return roipool.paste_masks(masks, boxes, SIZE)

    axes = dict.fromkeys(range(3), Dim.AUTO)
    exported = torch.export.export(
        Program(), masks_and_boxes(), dynamic_shapes={"masks": axes, "boxes": {0: Dim.AUTO}}
    )
    masks, boxes = masks_and_boxes(5)
    masks = torch.cat([masks, masks], 2)
    expected = Program()(masks, boxes)
    torch.testing.assert_close(exported.module()(masks, boxes), expected, rtol=0, atol=0)


# torch compiles a formula of its own, in forward mode, with what it deprecates.
@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_derivatives_that_there_are_not() -> None:
    masks, boxes = masks_and_boxes()
    upstream = torch.ones(3, *SIZE, dtype=torch.float64).requires_grad_()
    pasted = roipool.paste_masks(masks.requires_grad_(), boxes, SIZE)
    with pytest.raises(TypeError, match="tensors must not require a gradient here"):
        torch.autograd.grad(pasted, masks, upstream, create_graph=True)
    with pytest.raises(NotImplementedError, match="no forward mode"):
        torch.func.jvp(lambda each: roipool.paste_masks(each, boxes, SIZE), (masks,), (masks,))


def test_no_gradient_is_lost() -> None:
    masks, boxes = masks_and_boxes()
    masks.requires_grad_()
    with pytest.raises(TypeError, match="paste_masks: tensors must not require a gradient here"):
        roipool.paste_masks(masks, boxes, SIZE, crop=True)
    with pytest.raises(TypeError, match="masks_to_rle: masks must not require a gradient"):
        roipool.masks_to_rle(masks, boxes, SIZE)
    assert not roipool.paste_masks(masks, boxes, SIZE, threshold=0.5).requires_grad
    with pytest.raises(TypeError, match="out must be None"):
        roipool.paste_masks(masks.detach(), boxes, SIZE, out=torch.empty(3, *SIZE))


@pytest.mark.parametrize("crop", [np.zeros(2), torch.zeros(2)])
def test_an_array_is_no_option(crop: Any) -> None:
    masks, boxes = masks_and_boxes()
    with pytest.raises(TypeError, match="paste_masks: crop must "):
        roipool.paste_masks(masks, boxes, SIZE, crop=crop)
