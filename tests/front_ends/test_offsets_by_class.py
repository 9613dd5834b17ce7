"""Offsets of classes and parts, of tensors and JAX arrays: NumPy's bits, and their gradients."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from _support.catalogue import Array, every_layout, in_layout

import roipool

RNG = np.random.default_rng(0)
SIZE = (3, 2)
MAPS = RNG.normal(size=(2, 12, 9, 8)).astype(np.float32)
ROIS = np.array([[0, 1, 1, 6, 7], [1, -3, 2, 5, 12], [0, 2, 2, 3, 4]], np.float32)
OFFSETS = RNG.normal(size=(3, 4, 2, 4)).astype(np.float32)  # of 2 classes
GRAD = RNG.normal(size=(3, 4, *SIZE)).astype(np.float32)
OPTIONS: dict[str, Any] = {"spatial_scale": 0.8, "samples": (2, 3), "group_size": (3, 1)}


def with_torch(maps: Array, offsets: Array, grad: Array, options: dict[str, Any]) -> list[Array]:
    """Return pooled values and both gradients, by autograd and by functions."""
    torch = importlib.import_module("torch")
    x, r, o, g = (torch.tensor(each) for each in (maps, ROIS, offsets, grad))
    leaves = [x.clone().requires_grad_(), o.clone().requires_grad_()]
    pooled = roipool.deformable_ps_roi_pool(leaves[0], r, leaves[1], SIZE, **options)
    pooled.backward(g)
    found = [pooled.detach(), *(leaf.grad for leaf in leaves)]
    found.append(roipool.deformable_ps_roi_pool_backward(g, r, o, x.shape, **options))
    found.append(roipool.deformable_ps_roi_pool_backward_offsets(g, x, r, o, **options))
    return [each.numpy() for each in found]


def with_jax(maps: Array, offsets: Array, grad: Array, options: dict[str, Any]) -> list[Array]:
    """Return the same of JAX arrays, of a compiled program."""
    jax = importlib.import_module("jax")
    x, r, o, g = (jax.numpy.asarray(each) for each in (maps, ROIS, offsets, grad))

    def pool(x: Any, o: Any) -> Any:
        return roipool.deformable_ps_roi_pool(x, r, o, SIZE, **options)

    pooled, transpose = jax.vjp(jax.jit(pool), x, o)
    found = [pooled, *transpose(g)]
    found.append(roipool.deformable_ps_roi_pool_backward(g, r, o, x.shape, **options))
    found.append(roipool.deformable_ps_roi_pool_backward_offsets(g, x, r, o, **options))
    return [np.asarray(each) for each in found]


@every_layout
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_results_are_those_of_numpy(library: str, layout: str) -> None:
    pytest.importorskip(library)
    maps, offsets, grad = (
        np.ascontiguousarray(in_layout(each, layout)) for each in (MAPS, OFFSETS, GRAD)
    )
    options = {**OPTIONS, "layout": layout}
    pooled = roipool.deformable_ps_roi_pool(maps, ROIS, offsets, SIZE, **options)
    by_maps = roipool.deformable_ps_roi_pool_backward(grad, ROIS, offsets, maps.shape, **options)
    by_offsets = roipool.deformable_ps_roi_pool_backward_offsets(
        grad, maps, ROIS, offsets, **options
    )
    compute = {"torch": with_torch, "jax": with_jax}[library]
    found = compute(maps, offsets, grad, options)
    expected = [pooled, by_maps, by_offsets, by_maps, by_offsets]
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_offsets_of_other_shapes_are_errors(library: str) -> None:
    module = pytest.importorskip(library)
    of = module.tensor if library == "torch" else module.numpy.asarray
    maps, rois = of(MAPS), of(ROIS)
    for shape, problem in (
        ((3, 3, 2, 2), r"must have shape \(3, 2 \* classes, rows, columns\)"),
        ((2, 4, 2, 2), r"must have shape \(3, 2 \* classes, rows, columns\)"),
        ((3, 6, 2, 2), "must divide the 4 channels of pooled values"),
    ):
        with pytest.raises(ValueError, match=f"deformable_ps_roi_pool: offsets.* {problem}"):
            roipool.deformable_ps_roi_pool(maps, rois, of(np.zeros(shape)), SIZE, **OPTIONS)
