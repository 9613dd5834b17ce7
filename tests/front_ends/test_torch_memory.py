"""Tensors whose storage a program has freed or shrunk, as FSDP does, are errors on every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from _support.loops import each
from _support.tensors import ALL_CASES, CASES, TensorCase, maps
from torch import Tensor

import roipool
import roipool.torch


def shrunk(tensor: Tensor, bytes_left: int = 0) -> Tensor:
    found = tensor.detach().clone().contiguous()
    found.untyped_storage().resize_(bytes_left)
    return found


def given(case: TensorCase) -> dict[str, Tensor]:
    boxes = case.boxes(dtype=torch.float32)
    return {"features": maps(torch.float32), "boxes": boxes, "indices": case.indices()}


def error_name(case: TensorCase, name: str) -> str:
    return {"boxes": case.op.boxes, "indices": case.op.indices}.get(name, name)


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
@each(name=["features", "boxes", "indices"], bytes_left=[0, 8])
def test_forward(name: str, bytes_left: int, case: TensorCase) -> None:
    arguments = given(case)
    arguments[name] = shrunk(arguments[name], bytes_left)
    if name == "features" and case.op.forward.startswith("multilevel"):
        arguments = {**given(case), "maps": arguments["features"]}
        call: Callable[[], Any] = lambda: roipool.multilevel_roi_align(  # noqa: E731
            [arguments["maps"]],
            arguments["boxes"],
            2,
            [1.0],
            batch_indices=arguments["indices"],
            levels=torch.zeros(5, dtype=torch.int64),
        )
    else:
        call = lambda: case.pool(*arguments.values())  # noqa: E731
    with pytest.raises(ValueError, match=rf"{error_name(case, name)}.* must hold memory"):
        call()


@pytest.mark.parametrize("case", CASES, ids=str)
@each(name=["grad_output", "argmax", "boxes", "indices"])
def test_gradients(name: str, case: TensorCase) -> None:
    arguments = given(case)
    pool = {"return_argmax": True} if case.variant.has_argmax else {}
    found = case.pool(*arguments.values(), **pool)
    pooled, argmax = found if pool else (found, None)
    if name == "argmax" and argmax is None:
        return
    values = {"grad_output": pooled, "argmax": argmax, **arguments}
    values[name] = shrunk(values[name])
    shape = arguments["features"].shape
    with pytest.raises(ValueError, match=f"{error_name(case, name)} must hold memory"):
        case.gradient(
            values["grad_output"], values["argmax"], values["boxes"], values["indices"], shape
        )


def test_the_way_by_addresses() -> None:
    """A table of boxes in the type of its maps' computation, nothing to differentiate."""
    features, rois = maps(torch.float32), torch.tensor([[0, 1.0, 1, 4, 4]])
    view = torch.zeros(4, *features.shape)[2]
    view.untyped_storage().resize_(view.untyped_storage().nbytes() // 2)
    for maps_given, table, name in (
        (shrunk(features), rois, "features"),
        (shrunk(features, 100), rois, "features"),
        (view, rois, "features"),
        (features, shrunk(rois), "rois"),
    ):
        with torch.no_grad(), pytest.raises(ValueError, match=f"{name} must hold memory"):
            roipool.roi_align(maps_given, table, 2)


def test_views_of_enough_memory_are_taken() -> None:
    whole = torch.randn(3, 2, 3, 10, 12)
    views = [whole[1], whole[2, :, :, ::2, ::3], whole[0].permute(0, 1, 3, 2), whole[1, :1]]
    rois = torch.tensor([[0, 0.5, 0.5, 3, 3]])
    for view in [*views, whole[0, :1].expand(2, 3, 10, 12), whole[0, :0]]:
        boxes = rois[: view.shape[0]]
        found = roipool.roi_align(view, boxes, 2)
        assert torch.equal(found, roipool.roi_align(view.clone().contiguous(), boxes, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tables_of_boxes_may_be_views(dtype: torch.dtype) -> None:
    features = torch.rand(2, 3, 10, 12).to(dtype)
    rois = torch.tensor([[0, 0.5, 0.5, 3, 3], [1, 2, 2, 9, 8], [1, 1, 4, 5, 6], [0, 2, 3, 7, 5]])
    for _ in range(2):
        expected = roipool.roi_align(features, rois, 2)
    wide, tall = torch.zeros(4, 7), torch.zeros(8, 5)
    wide[:, 1:6], tall[::2] = rois, rois
    for view in (wide[:, 1:6], tall[::2], rois.T.contiguous().T):
        assert torch.equal(view, rois)
        assert torch.equal(roipool.roi_align(features, view, 2), expected)
    assert torch.equal(roipool.roi_align(features, rois[:1].expand(3, 5), 2)[1], expected[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_zeros_without_memory_are_zeros(dtype: torch.dtype) -> None:
    """torch has such for tangents and gradients that are 0."""
    plain, rois = torch.rand(2, 3, 6, 7).to(dtype), torch.tensor([[1, 0.5, 0.5, 3, 3]])
    empty = torch._efficientzerotensor(plain.shape, dtype=dtype)
    for features in (empty, plain.requires_grad_(), empty):
        pooled = roipool.roi_align(features, rois, 2)
        assert pooled.bool().any() == (features is plain)
        if features is plain:
            gradient = torch._efficientzerotensor(pooled.shape, dtype=dtype)
            (found,) = torch.autograd.grad(pooled, plain, gradient)
            assert not found.any()
    of_zeros, expected = (
        roipool.roi_align(plain, boxes, 2)
        for boxes in (torch._efficientzerotensor((1, 5)), torch.zeros(1, 5))
    )
    assert torch.equal(of_zeros, expected)


def test_maps_of_one_cell_are_not_channels_last() -> None:
    """They have both memory formats at once; results have the default format."""
    features = torch.rand(2, 3, 1, 1)
    assert features.is_contiguous(memory_format=torch.channels_last)
    assert roipool.roi_pool(features, torch.tensor([[0.0, 0, 0, 1, 1]]), 2).is_contiguous()
