"""What torch.func can do with a pooling: gradients per example, Hessian-vector products, vmap.

``python examples/torch_derivatives.py`` prints the shapes.
"""

from __future__ import annotations

import torch
from torch import Tensor

import roipool


def main() -> None:
    """Differentiate a loss of pooled values."""
    torch.manual_seed(0)
    features = torch.randn(4, 1, 8, 12, 12)  # four calls of one picture each
    boxes = torch.tensor([[1.0, 1.0, 7.0, 8.0], [3.0, 2.0, 11.0, 9.0]])
    indices = torch.zeros(2, dtype=torch.int64)

    def loss(maps: Tensor, corners: Tensor) -> Tensor:
        pooled = roipool.roi_align(maps, corners, 3, batch_indices=indices)
        return pooled.square().sum()

    per_call = torch.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(0, None))
    of_maps, of_boxes = per_call(features, boxes)
    print("gradients of each call:", tuple(of_maps.shape), tuple(of_boxes.shape))

    def gradient(maps: Tensor) -> Tensor:
        return torch.func.grad(loss)(maps, boxes)

    _, product = torch.func.jvp(gradient, (features[0],), (features[1],))
    print("Hessian-vector product:", tuple(product.shape))


if __name__ == "__main__":
    main()
