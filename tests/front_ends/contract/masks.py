"""Masks that are pasted, cut and encoded: results and gradients are those of NumPy arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _support.compare import assert_same_bits
from _support.loops import each

import roipool

from .front_end import Contract, FrontEnd, dtype_named

SIZE = (9, 11)
RNG = np.random.default_rng(0)
MASKS = RNG.random((3, 5, 6)).astype(np.float32)
BOXES = np.sort(RNG.uniform(-2, 12, (3, 2, 2)), axis=1).reshape(3, 4).astype(np.float32)
WEIGHTS = RNG.normal(size=(3, *SIZE)).astype(np.float32)
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"threshold": 0.5}, {"dtype": "uint8"})
DTYPES = ("float16", "bfloat16", "float32", "float64")


class Masks(Contract):
    """Masks of any library."""

    @each(options=OPTIONS, dtype=DTYPES)
    def test_pasted_masks_are_those_of_numpy(
        self, front_end: FrontEnd, options: dict[str, Any], dtype: str
    ) -> None:
        masks = MASKS.astype(dtype_named(dtype))
        expected = roipool.paste_masks(masks, BOXES, SIZE, **options)

        def pasted(masks: Any, boxes: Any) -> Any:
            return roipool.paste_masks(masks, boxes, SIZE, **options)

        compiled = [front_end.compiled(pasted)] if dtype == "float32" else []
        for function in (pasted, *compiled):
            found = function(front_end.masks(masks), front_end.array(BOXES))
            assert_same_bits(front_end.numpy(found), expected)

    def test_targets_are_those_of_numpy(self, front_end: FrontEnd) -> None:
        masks, indices = MASKS > 0.5, np.arange(3)
        at = front_end.array(BOXES), front_end.array(indices)
        for dtype in ("bool", "uint8", "float32"):
            own = front_end.masks(masks.astype(dtype))
            found = roipool.crop_masks(own, *at, 4, threshold=0.5)
            expected = roipool.crop_masks(masks, BOXES, indices, 4, threshold=0.5)
            assert_same_bits(front_end.numpy(found), expected)


class MasksOfKnownValues(Masks):
    """Masks of a library that differentiates, and whose values can be read."""

    def test_gradients_of_masks_are_those_of_numpy(self, front_end: FrontEnd) -> None:
        pooled, gradients = front_end.vjp(
            lambda masks, boxes: roipool.paste_masks(masks, boxes, SIZE),
            (front_end.masks(MASKS), front_end.array(BOXES)),
            2,
            front_end.array(WEIGHTS),
        )
        assert_same_bits(front_end.numpy(pooled), roipool.paste_masks(MASKS, BOXES, SIZE))
        for found, expected in zip(
            gradients,
            [
                roipool.paste_masks_backward(WEIGHTS, BOXES, MASKS.shape),
                roipool.paste_masks_backward_boxes(WEIGHTS, MASKS, BOXES),
            ],
            strict=True,
        ):
            assert_same_bits(front_end.numpy(found), expected)

    def test_a_batch_of_pasted_masks_is_a_loop(self, front_end: FrontEnd) -> None:
        many, boxes = np.stack([MASKS, MASKS[:, ::-1]]), front_end.array(BOXES)
        paste = front_end.functional.vmap(lambda one: roipool.paste_masks(one, boxes, SIZE))
        expected = np.stack([roipool.paste_masks(one, BOXES, SIZE) for one in many])
        assert_same_bits(front_end.numpy(paste(front_end.array(many))), expected)

    def test_pieces_and_run_lengths_are_those_of_numpy(self, front_end: FrontEnd) -> None:
        own = front_end.masks(MASKS), front_end.array(BOXES)
        assert roipool.masks_to_rle(*own, SIZE) == roipool.masks_to_rle(MASKS, BOXES, SIZE)
        pieces, places = roipool.paste_masks(*own, SIZE, crop=True)
        expected, wanted = roipool.paste_masks(MASKS, BOXES, SIZE, crop=True)
        np.testing.assert_array_equal(np.asarray(places), wanted)
        for piece, other in itertools.zip_longest(pieces, expected):
            assert_same_bits(front_end.numpy(piece), other)
