"""Masks as arrays of Dask: a task for each chunk of masks."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

import roipool

SIZE = (9, 11)
RNG = np.random.default_rng(0)
MASKS = RNG.random((5, 5, 6)).astype(np.float32)
BOXES = np.sort(RNG.uniform(-2, 12, (5, 2, 2)), axis=1).reshape(5, 4)


@pytest.mark.parametrize("chunks", [(2, 5, 6), (5, 2, 3), (1, 5, 6)])
@pytest.mark.parametrize("options", [{}, {"threshold": 0.5}, {"dtype": "uint8"}])
def test_values_are_those_of_arrays(chunks: tuple[int, ...], options: dict[str, Any]) -> None:
    masks = da.from_array(MASKS, chunks=chunks)
    found = roipool.paste_masks(masks, BOXES, SIZE, **options)
    expected = roipool.paste_masks(MASKS, BOXES, SIZE, **options)
    assert isinstance(found, da.Array)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.compute(), expected)


def test_targets() -> None:
    masks = da.from_array(MASKS > 0.5, chunks=2)
    found = roipool.crop_masks(masks, BOXES, np.arange(5), 3, threshold=0.5)
    expected = roipool.crop_masks(MASKS > 0.5, BOXES, np.arange(5), 3, threshold=0.5)
    np.testing.assert_array_equal(found.compute(), expected)


def test_results_that_need_values() -> None:
    masks = da.from_array(MASKS)
    with pytest.raises(TypeError, match="masks_to_rle: masks must be known"):
        roipool.masks_to_rle(masks, BOXES, SIZE)
    with pytest.raises(TypeError, match="paste_masks: masks must be known"):
        roipool.paste_masks(masks, BOXES, SIZE, crop=True)
    with pytest.raises(TypeError, match="paste_masks_backward takes no Dask arrays"):
        roipool.paste_masks_backward(masks, BOXES, MASKS.shape)
