"""torchvision's Faster R-CNN with its pooling computed by roipool: no change to the model.

``python examples/torch_detector.py`` runs it, with random weights, both ways.
"""

from __future__ import annotations

import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

import roipool.torch


def main() -> None:
    """Compare the boxes that both find."""
    torch.manual_seed(0)
    model = fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, box_score_thresh=0.0
    ).eval()
    images = [torch.rand(3, 240, 320)]
    with torch.no_grad():
        theirs = model(images)[0]["boxes"]
        with roipool.torch.override_torchvision():
            ours = model(images)[0]["boxes"]
    difference = float((ours - theirs).abs().max())
    print(f"{len(theirs)} boxes, at most {difference:.1e} pixels apart")


if __name__ == "__main__":
    main()
