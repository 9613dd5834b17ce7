"""Train two layers around ROI align to tell shapes apart, all of it compiled.

``python examples/jax_training.py`` prints the loss before and after.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import roipool

Params = dict[str, Any]
BOXES = 8


def pictures(seed: int) -> tuple[Any, Any, Any]:
    """Return pictures with a bar in each box, upright or lying, the boxes, and which it is."""
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 0.1, (2, 1, 32, 32)).astype(np.float32)
    labels = rng.integers(0, 2, BOXES)
    rois = np.zeros((BOXES, 5), np.float32)
    for number, label in enumerate(labels):
        image, slot = divmod(number, BOXES // 2)
        y, x = 16 * (slot // 2) + rng.integers(0, 5), 16 * (slot % 2) + rng.integers(0, 5)
        height, width = (10, 3) if label else (3, 10)
        images[image, 0, y : y + height, x : x + width] += 1
        rois[number] = image, x - 1, y - 1, x + 11, y + 11
    return jnp.asarray(images), jnp.asarray(rois), jnp.asarray(labels)


def loss(params: Params, images: Any, rois: Any, labels: Any) -> Any:
    """Return the cross entropy of a convolution, ROI align and a linear layer."""
    features = jax.nn.relu(jax.lax.conv(images, params["filters"], (1, 1), "SAME"))
    pooled = roipool.roi_align(features, rois, output_size=3, sampling_ratio=2)
    scores = pooled.reshape(len(pooled), -1) @ params["weights"]
    return -jax.nn.log_softmax(scores)[jnp.arange(BOXES), labels].mean()


@jax.jit
def step(params: Params, images: Any, rois: Any, labels: Any) -> tuple[Params, Any]:
    """Return the parameters after a step of gradient descent, and the loss before it."""
    value, slopes = jax.value_and_grad(loss)(params, images, rois, labels)
    return jax.tree.map(lambda each, slope: each - 0.3 * slope, params, slopes), value


def train(steps: int = 60) -> tuple[float, float]:
    """Return the loss at the begin and at the end."""
    keys = jax.random.split(jax.random.key(0))
    params = {
        "filters": 0.3 * jax.random.normal(keys[0], (4, 1, 3, 3)),
        "weights": 0.1 * jax.random.normal(keys[1], (4 * 3 * 3, 2)),
    }
    losses = []
    for number in range(steps):
        params, value = step(params, *pictures(number % 8))
        losses.append(float(value))
    return losses[0], sum(losses[-8:]) / 8


def main() -> None:
    """Train, and say what it brought."""
    first, last = train()
    print(f"loss {first:.3f} -> {last:.3f}")
    if last > first / 4:
        raise SystemExit("the loss did not fall to a quarter")
    if train() != (first, last):
        raise SystemExit("the same seed gave other numbers")


if __name__ == "__main__":
    main()
