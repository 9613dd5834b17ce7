"""Derivatives and values of masks that JAX cannot have are errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from front_ends.contract.masks import BOXES, MASKS, SIZE

import roipool


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


def test_run_lengths_need_values() -> None:
    with pytest.raises(TypeError):
        jax.jit(lambda each: roipool.masks_to_rle(each, BOXES, SIZE)[0]["size"][0])(MASKS)


def test_an_area_beyond_32_bits_is_not_cut() -> None:
    size, mask = (2**16, 2**16), jnp.ones((1, 4, 4))
    with pytest.raises(ValueError, match="results hold numbers beyond 32 bits"):
        roipool.masks_to_rle(mask, [[0, 0, *size]], size, areas=True)
    _, areas = roipool.masks_to_rle(mask, [[0, 0, *size]], size, areas=True, threshold=2)
    assert areas.tolist() == [0]
