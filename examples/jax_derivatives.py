"""What JAX's transformations can do with a pooling: padded boxes, Hessian-vector products.

``python examples/jax_derivatives.py`` prints the shapes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import roipool


def main() -> None:
    """Differentiate a loss of pooled values."""
    features = jax.random.normal(jax.random.key(0), (4, 1, 8, 12, 12))  # four calls of one picture
    # Lists of boxes of different lengths, padded: an index of -1 is no image, and pools nothing.
    boxes = jnp.tile(jnp.array([[1.0, 1.0, 7.0, 8.0], [3.0, 2.0, 11.0, 9.0]]), (4, 1, 1))
    indices = jnp.array([[0, 0], [0, -1], [0, 0], [-1, -1]])

    def loss(maps: Any, corners: Any, images: Any) -> Any:
        pooled = roipool.roi_align(maps, corners, 3, batch_indices=images)
        return (pooled**2).sum()

    per_call = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))
    of_maps, of_boxes = per_call(features, boxes, indices)
    print("gradients of each call:", of_maps.shape, of_boxes.shape)

    def gradient(maps: Any) -> Any:
        return jax.grad(loss)(maps, boxes[0], indices[0])

    _, product = jax.jvp(gradient, (features[0],), (features[1],))
    print("Hessian-vector product:", product.shape)


if __name__ == "__main__":
    main()
