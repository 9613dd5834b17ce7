"""torchvision's masks: its own functions, and those of roipool in their place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import grid_sample
from torchvision.models import detection
from torchvision.models.detection import roi_heads, transform

import roipool.torch
from roipool import compat

GENERATOR = torch.Generator().manual_seed(0)


def number(low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=GENERATOR))


def calls(count: int) -> Iterator[tuple[Tensor, Tensor, tuple[int, int], int]]:
    """Yield masks, boxes that overlap the picture, its size, and the padding."""
    for turn in range(count):
        masks, side, size = number(1, 5), number(1, 12), (number(8, 40), number(8, 40))
        scale = torch.tensor([size[1], size[0]] * 2)
        corners = torch.rand(masks, 2, 2, generator=GENERATOR).sort(dim=1).values
        boxes = (corners.reshape(masks, 4) * 1.6 - 0.3) * scale
        boxes[:, :2] = torch.minimum(boxes[:, :2], scale[:2] - 1.0)
        boxes[:, 2:] = torch.maximum(boxes[:, 2:], boxes[:, :2] + 1).clamp(min=1)
        boxes = boxes.round() if turn % 3 == 0 else boxes
        yield torch.rand(masks, 1, side, side, generator=GENERATOR), boxes, size, number(0, 3)


def test_pasting_is_torchvisions() -> None:
    for masks, boxes, size, padding in calls(200):
        own, other = masks.clone().requires_grad_(), masks.clone().requires_grad_()
        expected = roi_heads.paste_masks_in_image(other, boxes, size, padding)
        found = compat.torchvision.paste_masks_in_image(own, boxes, size, padding)
        torch.testing.assert_close(found, expected, rtol=0, atol=3e-6)
        gradient = torch.rand(expected.shape, generator=GENERATOR)
        found.backward(gradient)
        expected.backward(gradient)
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_targets_are_torchvisions() -> None:
    for _, boxes, size, _ in calls(100):
        masks = torch.rand(3, *size, generator=GENERATOR) > 0.5
        numbers = torch.randint(0, 3, (len(boxes),), generator=GENERATOR)
        expected = roi_heads.project_masks_on_boxes(masks.to(torch.uint8), boxes, numbers, 7)
        for given in (masks, masks.to(torch.uint8)):
            found = compat.torchvision.project_masks_on_boxes(given, boxes, numbers, 7)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def detectron2_rule(masks: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Return values of the published rule in the whole picture, as detectron2 has them on GPUs."""
    rows, columns = (torch.arange(side) + 0.5 for side in size)
    x1, y1, x2, y2 = boxes[:, :, None].unbind(1)
    x = ((columns - x1) / (x2 - x1) * 2 - 1)[:, None].expand(-1, size[0], -1)
    y = ((rows - y1) / (y2 - y1) * 2 - 1)[:, :, None].expand(-1, -1, size[1])
    return grid_sample(masks, torch.stack([x, y], 3), align_corners=False)[:, 0]


def test_pasting_is_detectron2s() -> None:
    off = 0
    for masks, boxes, size, _ in calls(200):
        values = detectron2_rule(masks, boxes, size)
        found = compat.detectron2.paste_masks_in_image(masks[:, 0], boxes, size)
        near = (values - 0.5).abs() < 3e-6
        off += int(((found != (values >= 0.5)) & ~near).sum())
        found = compat.detectron2.paste_masks_in_image(masks[:, 0], boxes, size, -1.0)
        expected = (values * 255).to(torch.uint8)
        assert (found.int() - expected.int()).abs().max() <= 1
        pasted, _ = compat.mmdet.do_paste_mask(masks, boxes, *size, skip_empty=False)
        torch.testing.assert_close(pasted, values, rtol=0, atol=3e-6)
        part, (rows, columns) = compat.mmdet.do_paste_mask(masks, boxes, *size)
        torch.testing.assert_close(part, pasted[:, rows, columns], rtol=0, atol=0)
    assert off == 0


# ---- Overrides


def small_model() -> Any:
    torch.manual_seed(0)
    return detection.maskrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        box_score_thresh=0.0,
        min_size=64,
        max_size=64,
        rpn_post_nms_top_n_test=20,
        rpn_post_nms_top_n_train=20,
        box_detections_per_img=10,
    )


def test_a_model_pastes_with_roipool(monkeypatch: pytest.MonkeyPatch) -> None:
    model, picture = small_model().eval(), [torch.rand(3, 50, 60)]
    used: list[Any] = []
    paste = compat.torchvision.paste_masks_in_image

    def counted(*args: Any) -> Any:
        used.append(args)
        return paste(*args)

    monkeypatch.setattr("roipool.torch._mask_overrides.torchvision.paste_masks_in_image", counted)
    with torch.inference_mode():
        (expected,) = model(picture)
        with roipool.torch.override_torchvision():
            (found,) = model(picture)
    assert len(used) == 1
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-4, atol=1e-4)


def test_a_model_learns_masks_with_roipool() -> None:
    target = {
        "boxes": torch.tensor([[4.0, 5, 30, 40]]),
        "labels": torch.tensor([1]),
        "masks": (torch.rand(1, 50, 60) > 0.5).to(torch.uint8),
    }
    losses = []
    for is_ours in (False, True):
        model, picture = small_model().train(), [torch.full((3, 50, 60), 0.5)]
        torch.manual_seed(1)
        if is_ours:
            with roipool.torch.override_torchvision():
                losses.append(model(picture, [target])["loss_mask"])
        else:
            losses.append(model(picture, [target])["loss_mask"])
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_functions_are_put_back() -> None:
    before = roi_heads.paste_masks_in_image, roi_heads.project_masks_on_boxes
    with roipool.torch.override_torchvision():
        assert transform.paste_masks_in_image is not before[0]
        scripted = torch.jit.script(transform.paste_masks_in_image)
    after = roi_heads.paste_masks_in_image, roi_heads.project_masks_on_boxes
    assert after == before
    assert transform.paste_masks_in_image is before[0]
    masks, boxes, size, padding = next(calls(1))
    expected = before[0](masks, boxes, size, padding)
    torch.testing.assert_close(scripted(masks, boxes, size, padding), expected)


@contextmanager
def toy_detectron2(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Install modules with the functions that the override replaces."""

    class BitMasks:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor

        def crop_and_resize(self, boxes: Tensor, mask_size: int) -> str:
            return "original"

    def paste_masks_in_image(*args: Any) -> str:
        return "original"

    names = "detectron2", "detectron2.layers", "detectron2.layers.mask_ops"
    names += "detectron2.structures", "detectron2.structures.masks"
    modules = {name: ModuleType(name) for name in names}
    for name in names[1:3]:
        modules[name].paste_masks_in_image = paste_masks_in_image  # type: ignore[attr-defined]
    modules[names[4]].BitMasks = BitMasks  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield SimpleNamespace(layers=modules[names[1]], masks=BitMasks)


def test_detectron2s_masks_are_pasted_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    masks, boxes, size, _ = next(calls(1))
    with toy_detectron2(monkeypatch) as detectron2:
        with roipool.torch.override_detectron2():
            found = detectron2.layers.paste_masks_in_image(
                masks[:, 0], SimpleNamespace(tensor=boxes), size, threshold=0.5
            )
            pictures = torch.rand(len(boxes), *size) > 0.5
            targets = detectron2.masks(pictures).crop_and_resize(boxes, 5)
        assert detectron2.layers.paste_masks_in_image() == "original"
        assert detectron2.masks(pictures).crop_and_resize(boxes, 5) == "original"
    expected = roipool.paste_masks(masks[:, 0], boxes, size, threshold=0.5)
    torch.testing.assert_close(found, expected)
    numbers = torch.arange(len(boxes))
    torch.testing.assert_close(
        targets, roipool.crop_masks(pictures, boxes, numbers, 5, threshold=0.5)
    )
