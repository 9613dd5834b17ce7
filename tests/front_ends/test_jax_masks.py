"""Masks as arrays of JAX: values, gradients and batches are those of NumPy arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roipool

SIZE = (9, 11)
RNG = np.random.default_rng(0)
MASKS = RNG.random((3, 5, 6)).astype(np.float32)
BOXES = np.sort(RNG.uniform(-2, 12, (3, 2, 2)), axis=1).reshape(3, 4).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"threshold": 0.5}, {"dtype": "uint8"}])
def test_values_are_those_of_arrays(options: dict[str, Any]) -> None:
    expected = roipool.paste_masks(MASKS, BOXES, SIZE, **options)
    masks, boxes = jnp.asarray(MASKS), jnp.asarray(BOXES)

    def pasted(masks: Any, boxes: Any) -> Any:
        return roipool.paste_masks(masks, boxes, SIZE, **options)

    for found in (pasted(masks, boxes), jax.jit(pasted)(masks, boxes)):
        assert isinstance(found, jax.Array)
        np.testing.assert_array_equal(found, expected)


def test_gradients() -> None:
    weights = RNG.normal(size=(3, *SIZE)).astype(np.float32)

    def loss(masks: Any, boxes: Any) -> Any:
        return (roipool.paste_masks(masks, boxes, SIZE) * weights).sum()

    given = jnp.asarray(MASKS), jnp.asarray(BOXES)
    for gradient in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
        by_masks, by_boxes = gradient(*given)
        expected = roipool.paste_masks_backward(weights, BOXES, MASKS.shape)
        np.testing.assert_array_equal(by_masks, expected)
        expected = roipool.paste_masks_backward_boxes(weights, MASKS, BOXES)
        np.testing.assert_array_equal(by_boxes, expected)


def test_there_are_no_second_derivatives() -> None:
    """A zero would be wrong: the sum of squares is not linear, and boxes move."""
    masks, boxes = jnp.asarray(MASKS), jnp.asarray(BOXES)

    def loss(masks: Any, boxes: Any) -> Any:
        return (roipool.paste_masks(masks, boxes, SIZE) ** 2).sum()

    for argument in (0, 1):
        for second in (jax.jacfwd, jax.jacrev):
            with pytest.raises(NotImplementedError, match="pasted masks have no second derivative"):
                second(jax.grad(loss, argument), argument)(masks, boxes)


def test_there_is_no_forward_mode() -> None:
    masks = jnp.asarray(MASKS)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda each: roipool.paste_masks(each, BOXES, SIZE), (masks,), (masks,))


def test_pieces_of_known_masks() -> None:
    pieces, places = roipool.paste_masks(jnp.asarray(MASKS), BOXES, SIZE, crop=True)
    expected, others = roipool.paste_masks(MASKS, BOXES, SIZE, crop=True)
    np.testing.assert_array_equal(places, others)
    for piece, other in zip(pieces, expected, strict=True):
        np.testing.assert_array_equal(piece, other)


def test_a_batch_of_calls() -> None:
    many = np.stack([MASKS, MASKS[:, ::-1]])
    found = jax.vmap(lambda each: roipool.paste_masks(each, BOXES, SIZE))(jnp.asarray(many))
    expected = np.stack([roipool.paste_masks(each, BOXES, SIZE) for each in many])
    np.testing.assert_array_equal(found, expected)


def test_run_lengths_and_targets() -> None:
    masks, boxes = jnp.asarray(MASKS), jnp.asarray(BOXES)
    assert roipool.masks_to_rle(masks, boxes, SIZE) == roipool.masks_to_rle(MASKS, BOXES, SIZE)
    found = roipool.crop_masks(masks > 0.5, boxes, [0, 1, 2], 4, threshold=0.5)
    expected = roipool.crop_masks(MASKS > 0.5, BOXES, [0, 1, 2], 4, threshold=0.5)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(TypeError):
        jax.jit(lambda each: roipool.masks_to_rle(each, BOXES, SIZE)[0]["size"][0])(masks)
