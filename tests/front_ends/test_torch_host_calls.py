"""Calls on plain CPU tensors are NumPy's, on their memory; others are computed as tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import roipool
from roipool import compat
from roipool.torch import _calls

RNG = np.random.default_rng(20261127)
MAPS, COARSE = (RNG.normal(size=(2, 3, size, size)).astype(np.float32) for size in (16, 8))
BOXES = np.array([[1, 1, 6, 9], [0, 2, 12, 5], [3, 3, 4, 4]], np.float32)
INDICES, LEVELS = np.array([0, 1, 1]), np.array([1, 0, 1])
ROIS = np.column_stack([INDICES, BOXES]).astype(np.float32)
GRADIENT = RNG.normal(size=(3, 3, 2, 2)).astype(np.float32)
SHAPES = ((2, 3, 16, 16), (2, 3, 8, 8))
POOLER = compat.torchvision.MultiScaleRoIAlign(["a", "b"], 2, 2)

# A call of each kind: its arrays, and how it is made of them.
CALLS: dict[str, tuple[list[np.ndarray], Callable[..., Any]]] = {
    "a table": ([MAPS, ROIS], lambda maps, rois: roipool.roi_align(maps, rois, 2)),
    "batch indices": (
        [MAPS, BOXES, INDICES],
        lambda maps, boxes, of: roipool.roi_align(maps, boxes, 2, batch_indices=of),
    ),
    "boxes of each image": (
        [MAPS, BOXES],
        lambda maps, boxes: compat.torchvision.roi_align(maps, [boxes[:1], boxes[1:]], 2),
    ),
    "a maximum": (
        [MAPS, ROIS],
        lambda maps, rois: roipool.roi_align(maps, rois, 2, mode="max", return_argmax=True),
    ),
    "a gradient": (
        [GRADIENT, ROIS],
        lambda gradient, rois: roipool.roi_align_backward(gradient, rois, SHAPES[0]),
    ),
    "a gradient of boxes": (
        [GRADIENT, MAPS, ROIS],
        lambda gradient, maps, rois: roipool.roi_align_backward_rois(gradient, maps, rois),
    ),
    "a pyramid": (
        [MAPS, COARSE, ROIS, LEVELS],
        lambda fine, coarse, rois, levels: roipool.multilevel_roi_align(
            [fine, coarse], rois, 2, [1.0, 0.5], levels=levels
        ),
    ),
    "gradients of a pyramid": (
        [GRADIENT, ROIS],
        lambda gradient, rois: roipool.multilevel_roi_align_backward(
            gradient, rois, SHAPES, (1.0, 0.5)
        ),
    ),
    "a pyramid by names": (
        [MAPS, COARSE, BOXES],
        lambda fine, coarse, boxes: POOLER(
            {"a": fine, "b": coarse}, [boxes[:1], boxes[1:]], [(16, 16)] * 2
        ),
    ),
}


def flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of functions that tensors are computed by as tensors."""
    names: list[str] = []
    compute = _calls._call_generally

    def noted(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        names.append(function.__name__)
        return compute(function, *args, **kwargs)

    monkeypatch.setattr(_calls, "_call_generally", noted)
    return names


@pytest.mark.parametrize("kind", CALLS)
def test_plain_tensors_are_arrays(kind: str, general: list[str]) -> None:
    arrays, call = CALLS[kind]
    expected = flat(call(*arrays))
    for _ in range(2):
        found = flat(call(*map(torch.from_numpy, arrays)))
        for own, other in zip(found, expected, strict=True):
            assert type(own) is Tensor
            assert np.array_equal(own.numpy(), other)
            assert own.numpy().dtype == other.dtype
    assert not general


def freed(tensor: Tensor) -> Tensor:
    copy = tensor.clone()
    copy.untyped_storage().resize_(0)
    return copy


# Tensors that are not NumPy's to compute, and how a call is made with each.
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "channels last": lambda maps: maps.contiguous(memory_format=torch.channels_last),
    "strided": lambda maps: maps.repeat_interleave(2, 3)[..., ::2],
    "negated view": lambda maps: torch._neg_view(-maps),
    "bfloat16": lambda maps: maps.bfloat16(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_tensors_are_computed_as_tensors(kind: str, general: list[str]) -> None:
    maps, rois = OTHERS[kind](torch.from_numpy(MAPS)), torch.from_numpy(ROIS)
    pooled = roipool.precise_roi_pool(maps, rois, [2, 2])  # a list is not kept
    assert general == ["precise_roi_pool"]
    assert pooled.dtype is maps.dtype
    assert pooled.requires_grad == maps.requires_grad
    if kind == "channels last":
        assert pooled.is_contiguous(memory_format=torch.channels_last)
    expected = roipool.reference.precise_roi_pool(MAPS, ROIS, 2)
    error = 2.0**-7 if kind == "bfloat16" else 2.0**-20
    assert np.allclose(pooled.detach().float().numpy(), expected, rtol=error, atol=error)


# Averages, which autograd records, as functions of their maps; the last is not 0 outside the map.
AVERAGES: dict[str, tuple[list[np.ndarray], Callable[..., Tensor]]] = {
    "a table": ([MAPS], lambda maps: roipool.roi_align(maps, torch.from_numpy(ROIS), 2)),
    "a system's table, cut": (
        [MAPS],
        lambda maps: compat.torchvision.roi_align(maps, torch.from_numpy(ROIS + 0.25), 2, 1.0, 2),
    ),
    "batch indices": (
        [MAPS],
        lambda maps: roipool.roi_align(
            maps, torch.from_numpy(BOXES), 2, batch_indices=torch.from_numpy(INDICES)
        ),
    ),
    "boxes of each image, NHWC": (
        [MAPS.transpose(0, 2, 3, 1).copy()],
        lambda maps: roipool.roi_align(
            maps, [torch.from_numpy(BOXES[:1]), torch.from_numpy(BOXES[1:])], 2, layout="NHWC"
        ),
    ),
    "a pyramid": (
        [MAPS, COARSE],
        lambda *maps: roipool.multilevel_roi_align(
            maps, torch.from_numpy(ROIS), 2, [1.0, 0.5], levels=torch.from_numpy(LEVELS)
        ),
    ),
    "a pyramid by names": (
        [MAPS, COARSE],
        lambda fine, coarse: POOLER(
            {"b": coarse, "a": fine},
            [torch.from_numpy(BOXES[:1]), torch.from_numpy(BOXES[1:])],
            [(16, 16)] * 2,
        ),
    ),
    "a crop": (
        [MAPS],
        lambda maps: roipool.crop_and_resize(
            maps,
            torch.from_numpy(BOXES / 10),
            torch.from_numpy(INDICES),
            3,
            extrapolation_value=7.0,
        ),
    ),
}


def linear_part(call: Callable[..., Tensor], arrays: list[np.ndarray]) -> np.ndarray:
    """Return what an average of maps is without the value outside of them."""
    zeros = [torch.zeros(each.shape) for each in arrays]
    return (call(*map(torch.from_numpy, arrays)) - call(*zeros)).numpy()


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_are_recorded_as_arrays(kind: str, general: list[str]) -> None:
    arrays, call = AVERAGES[kind]
    expected = call(*map(torch.from_numpy, arrays))
    others = [RNG.normal(size=each.shape).astype(np.float32) for each in arrays]
    of_others = linear_part(call, others)
    for _ in range(2):
        leaves = [torch.from_numpy(each).clone().requires_grad_() for each in arrays]
        pooled = call(*leaves)
        assert torch.equal(pooled, expected)
        upstream = torch.randn(pooled.shape, generator=torch.manual_seed(3)).requires_grad_()
        found = torch.autograd.grad(pooled, leaves, upstream, retain_graph=True)
        both = zip(found, others, strict=True)
        transposed = sum(float((one.numpy() * other).sum()) for one, other in both)
        assert np.isclose(transposed, (of_others * upstream.detach().numpy()).sum(), rtol=1e-4)
        again = torch.autograd.grad(pooled, leaves, upstream, create_graph=True)
        assert all(map(torch.equal, again, found))
        both = zip(again, map(torch.from_numpy, others), strict=True)
        loss = sum((one * other).sum() for one, other in both)
        (second,) = torch.autograd.grad(loss, upstream)  # its transpose, the forward
        assert np.allclose(second.numpy(), of_others, atol=1e-5)
    assert not general


def test_boxes_that_change_before_the_backward_are_an_error() -> None:
    maps, rois = torch.from_numpy(MAPS).clone().requires_grad_(), torch.from_numpy(ROIS).clone()
    pooled = roipool.roi_align(maps, rois, 2)
    rois += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        pooled.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "call",
    [
        lambda maps, size: roipool.roi_align(maps, torch.from_numpy(ROIS), size),
        lambda maps, size: roipool.roi_pool(maps, torch.from_numpy(ROIS), size),
        lambda maps, size: compat.torchvision.roi_pool(maps, torch.from_numpy(ROIS), size),
        lambda maps, size: roipool.roi_align(maps, [torch.from_numpy(BOXES[:0])] * 2, size),
    ],
)
def test_calls_are_computed_again_for_checkpoints(
    dtype: torch.dtype, call: Callable[[Tensor, int], Tensor]
) -> None:
    """The first call with some options saves the same for derivatives as later ones."""
    leaf = torch.from_numpy(MAPS).to(dtype).requires_grad_()
    for size in (5, 5, 6):
        pooled = checkpoint(call, leaf, size, use_reentrant=False)
        (found,) = torch.autograd.grad(pooled.sum(), leaf)
        (expected,) = torch.autograd.grad(call(leaf, size).sum(), leaf)
        assert torch.equal(found, expected)


def test_errors_speak_of_tensors() -> None:
    maps, rois = torch.from_numpy(MAPS), torch.from_numpy(ROIS)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"rois\[0\] must be a tensor, as other arguments are"):
            roipool.roi_align(maps, [(0, 1, 1, 3, 3)], 2)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="out must be None for a tensor"):
            roipool.roi_align(maps, rois, 2, out=torch.zeros(3, 3, 2, 2))
        with pytest.raises(TypeError, match=r"features must have dtype .*features\.float"):
            roipool.roi_align(maps.long(), rois, 2)
        with pytest.raises(ValueError, match="features must hold memory"):
            roipool.roi_align(freed(maps), rois, 2)
        roipool.roi_align(maps, rois, 2)
    assert roipool.roi_align(MAPS, [(0, 1, 1, 3, 3)], 2).shape == (1, 3, 2, 2)


def test_gradients_are_recorded_after_calls_without() -> None:
    maps, rois = torch.from_numpy(MAPS), torch.from_numpy(ROIS)
    with torch.no_grad():
        known = roipool.roi_align(maps.clone().requires_grad_(), rois, 2)
    leaf = maps.clone().requires_grad_()
    pooled = roipool.roi_align(leaf, rois, 2)
    assert torch.equal(pooled, known)
    pooled.backward(torch.from_numpy(GRADIENT))
    expected = roipool.reference.roi_align_backward(GRADIENT, ROIS, MAPS.shape)
    assert np.allclose(leaf.grad.numpy(), expected, atol=1e-5)


class Named(Tensor):
    """A tensor of a subclass."""


def test_subclasses_and_threads_have_calls_of_their_own(general: list[str]) -> None:
    maps, rois = torch.from_numpy(MAPS), torch.from_numpy(ROIS)
    expected = roipool.roi_align(maps, rois, 2)
    own = roipool.roi_align(maps.as_subclass(Named), rois, 2)
    assert torch.equal(own.as_subclass(Tensor), expected)
    assert general
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(roipool.roi_align, maps, rois, 2) for _ in range(40)]
        assert all(torch.equal(each.result(), expected) for each in calls)


@pytest.mark.skipif(sys.platform == "win32", reason="no forks")
def test_a_fork_computes_kept_calls() -> None:
    maps, rois = torch.from_numpy(MAPS), torch.from_numpy(ROIS)
    expected = roipool.roi_align(maps, rois, 2)
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(roipool.roi_align(maps, rois, 2), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("scale", [0.5, 2, True])
def test_a_tensor_is_no_option(scale: float) -> None:
    """Not even one of no dimensions, which NumPy takes for a number."""
    features, rois = torch.ones(1, 1, 5, 5), torch.tensor([[0.0, 0, 0, 3, 3]])
    with pytest.raises(TypeError, match="roi_align: spatial_scale must not be a tensor"):
        roipool.roi_align(features, rois, 2, torch.tensor(scale))
