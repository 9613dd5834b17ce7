"""ROI align with a gradient for MLX: an ``mlx.core.custom_function``.

Without it, ``mlx.core.grad`` answers zeros. ``python examples/mlx_gradient.py`` compares the
gradient with the adjoint identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

import roipool


@mx.custom_function  # type: ignore[untyped-decorator]  # no types where no mlx is
def roi_align(features: Any, rois: Any) -> Any:
    """Pool (N, C, H, W) maps; rows of rois are batch index, x1, y1, x2, y2."""
    return roipool.roi_align(features, rois, 2, sampling_ratio=2)


@roi_align.vjp  # type: ignore[untyped-decorator]
def gradients(given: Sequence[Any], upstream: Any, _: Any) -> tuple[Any, Any]:
    """Return the gradients of maps and boxes."""
    features, rois = given
    by_maps = roipool.roi_align_backward(upstream, rois, features.shape, sampling_ratio=2)
    by_boxes = roipool.roi_align_backward_rois(upstream, features, rois, sampling_ratio=2)
    return by_maps, mx.pad(by_boxes, [(0, 0), (1, 0)])


def main() -> None:
    """Check <pool(x), g> = <x, gradient>: pooling is linear in the maps."""
    rng = np.random.default_rng(0)
    features = mx.array(rng.normal(size=(2, 3, 8, 9)).astype(np.float32))
    rois = mx.array([[0, 1.1, 1.2, 6.3, 6.4], [1, 0.4, 2.3, 5.2, 7.3]])
    grad = mx.array(rng.normal(size=(2, 3, 2, 2)).astype(np.float32))

    def loss(features: Any, rois: Any) -> Any:
        return (roi_align(features, rois) * grad).sum()

    by_maps, by_boxes = mx.grad(loss, argnums=(0, 1))(features, rois)
    difference = float(loss(features, rois) - (features * by_maps).sum())
    print(f"difference {difference:.1e}, boxes' gradient {tuple(by_boxes.shape)}")
    if abs(difference) > 1e-4 or not float(mx.abs(by_boxes).max()) > 0:
        raise SystemExit("not the gradient")


if __name__ == "__main__":
    main()
