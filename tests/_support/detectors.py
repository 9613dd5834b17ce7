"""torchvision's detectors with random weights, and targets for them."""

from __future__ import annotations

from typing import Any

import torch
from torchvision.models import detection

DETECTORS = {
    "Faster R-CNN": (detection.fasterrcnn_resnet50_fpn, 3),
    "Mask R-CNN": (detection.maskrcnn_resnet50_fpn, 3),
    "Keypoint R-CNN": (detection.keypointrcnn_resnet50_fpn, 2),
}


def detector(name: str, size: int, proposals: int, detections: int | None = None) -> Any:
    """Return a detector with fixed random weights, which resizes pictures to a shorter side.

    The shorter side is `size`. `detections` is the number of detections per picture; by default
    every proposal of every class, so that near ties of random scores do not affect the result.
    """
    build, classes = DETECTORS[name]
    torch.manual_seed(0)
    return build(
        weights=None,
        weights_backbone=None,
        num_classes=classes,
        min_size=size,
        max_size=2 * size,
        box_score_thresh=0.0,
        box_nms_thresh=2.0,
        box_detections_per_img=10 * proposals if detections is None else detections,
        rpn_pre_nms_top_n_train=2 * proposals,
        rpn_pre_nms_top_n_test=2 * proposals,
        rpn_post_nms_top_n_train=proposals,
        rpn_post_nms_top_n_test=proposals,
    )


def pictures(height: int, width: int, count: int = 1) -> list[torch.Tensor]:
    """Return random pictures."""
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(3, height, width, generator=generator) for _ in range(count)]


def targets(height: int, width: int, count: int = 1) -> list[dict[str, torch.Tensor]]:
    """Return two objects for each picture: boxes, labels, masks, keypoints."""
    corners = torch.tensor([[0.1, 0.2, 0.5, 0.7], [0.4, 0.1, 0.9, 0.6]])
    boxes = corners * torch.tensor([width, height, width, height])
    masks = torch.zeros(2, height, width, dtype=torch.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes.int().tolist(), strict=True):
        mask[y1:y2, x1:x2] = 1
    share = torch.linspace(0.1, 0.9, 17)[None, :, None]
    points = boxes[:, None, :2] + share * (boxes[:, None, 2:] - boxes[:, None, :2])
    keypoints = torch.cat([points, torch.ones(2, 17, 1)], 2)
    target = {
        "boxes": boxes,
        "labels": torch.ones(2, dtype=torch.int64),
        "masks": masks,
        "keypoints": keypoints,
    }
    return [dict(target) for _ in range(count)]
