"""ROI align with a gradient for Paddle: a ``PyLayer``.

``python examples/paddle_gradient.py`` compares its gradient with the adjoint identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

import roipool


class RoiAlign(paddle.autograd.PyLayer):  # type: ignore[misc]  # no types where no paddle is
    """Pool (N, C, H, W) maps; rows of rois are batch index, x1, y1, x2, y2."""

    @staticmethod
    def forward(ctx: Any, features: Any, rois: Any) -> Any:
        """Return pooled values."""
        ctx.save_for_backward(features, rois)
        return roipool.roi_align(features.detach(), rois.detach(), 2, sampling_ratio=2)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[Any, Any]:
        """Return the gradients of maps and boxes."""
        features, rois = (each.detach() for each in ctx.saved_tensor())
        grad = upstream.detach()
        by_maps = roipool.roi_align_backward(grad, rois, features.shape, sampling_ratio=2)
        by_boxes = roipool.roi_align_backward_rois(grad, features, rois, sampling_ratio=2)
        return by_maps, paddle.nn.functional.pad(by_boxes, [0, 0, 1, 0])


def main() -> None:
    """Check <pool(x), g> = <x, gradient>: pooling is linear in the maps."""
    rng = np.random.default_rng(0)
    features = paddle.to_tensor(rng.normal(size=(2, 3, 8, 9)), stop_gradient=False)
    rois = paddle.to_tensor([[0, 1.1, 1.2, 6.3, 6.4], [1, 0.4, 2.3, 5.2, 7.3]], dtype="float64")
    rois.stop_gradient = False
    pooled = RoiAlign.apply(features, rois)
    grad = paddle.to_tensor(rng.normal(size=pooled.shape))
    (pooled * grad).sum().backward()
    difference = float((pooled * grad).sum() - (features * features.grad).sum())
    print(f"difference {difference:.1e}, boxes' gradient {tuple(rois.grad.shape)}")
    if abs(difference) > 1e-9 or not np.abs(rois.grad.numpy()).max() > 0:
        raise SystemExit("not the gradient")


if __name__ == "__main__":
    main()
