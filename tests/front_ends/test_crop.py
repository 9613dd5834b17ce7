"""Crops of pictures in the arrays of other libraries are those of NumPy's, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import roipool

PICTURE = np.random.default_rng(0).integers(0, 256, (61, 83, 3), np.uint8)
BOXES = [[-3, 5, 12, 40], [20, 10, 60, 52], [70, 0, 83, 9]]
EXPECTED = roipool.crop(PICTURE, BOXES, 16)


def array_of(library: str) -> Any:
    module = pytest.importorskip(library)
    if library == "zarr":
        return module.array(PICTURE, chunks=(8, 8, 3))
    makers = {"torch": "from_numpy", "jax.numpy": "asarray", "dask.array": "from_array"}
    return getattr(module, makers[library])(PICTURE)


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "dask.array", "zarr"])
def test_values_and_library(library: str) -> None:
    picture = array_of(library)
    crops = roipool.crop(picture, BOXES, 16)
    assert isinstance(crops, np.ndarray if library == "zarr" else type(picture))
    np.testing.assert_array_equal(np.asarray(crops), EXPECTED)
    own = roipool.crop(picture, BOXES)
    for crop, expected in zip(own, roipool.crop(PICTURE, BOXES), strict=True):
        np.testing.assert_array_equal(np.asarray(crop), expected)


def test_gradient_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    picture = torch.rand(9, 11, dtype=torch.float64, requires_grad=True)
    boxes = torch.tensor([[-2, 1, 7, 9], [3, 0, 11, 4]])
    assert torch.autograd.gradcheck(lambda each: roipool.crop(each, boxes, (3, 5)), picture)


def test_gradient_of_jax() -> None:
    jax = pytest.importorskip("jax")
    picture = np.random.default_rng(1).random((9, 11), np.float32)

    def total(each: Any) -> Any:
        return (roipool.crop(each, [[-2, 1, 7, 9]], (3, 5)) ** 2).sum()

    gradient = np.asarray(jax.jit(jax.grad(total))(picture))
    step = np.float32(1 / 64)
    for place in [(0, 0), (1, 3), (8, 6), (5, 10)]:
        moved = [picture.copy(), picture.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        slope = (total(moved[0]) - total(moved[1])) / (2 * step)
        assert abs(gradient[place] - slope) < 1e-3
