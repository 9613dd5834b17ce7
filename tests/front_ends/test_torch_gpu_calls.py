"""Calls of public functions on CUDA tensors: those after the first of their options are small.

On the emulator: CPU tensors pose as a GPU's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from _support import emulator
from _support.emulator import driver
from _support.pretended import Pretended
from _support.tensors import FORMATS, maps
from torch import Tensor

import roipool
import roipool.torch
from roipool.torch import _autograd, _calls, _launches, _library
from roipool.torch._families import FAMILIES
from roipool.torch._kernels import KERNELS
from roipool.torch._memory import ON_CPU
from roipool.torch._operators import on_device

SCALES = (0.5, 0.25)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let functions take the host's tensors for a GPU's; list those calls that are not small."""
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    compute, names = _calls._call_generally, []

    def listed(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        names.append(function.__name__)
        return compute(function, *args, **kwargs)

    monkeypatch.setattr(_calls, "_call_generally", listed)
    monkeypatch.setattr(_calls, "is_on_gpu", lambda first: True)
    monkeypatch.setattr(_calls, "_kept", {})  # none before
    monkeypatch.setattr(_library, "device", lambda tensor: nullcontext())
    monkeypatch.setattr(_autograd, "device_of_plain", lambda *tensors: "CUDA")
    monkeypatch.setattr(_launches.READER, "device_type", ON_CPU)
    monkeypatch.setattr(_launches.READER, "current_device", lambda: 0)
    monkeypatch.setattr(_launches, "current_stream", lambda gpu: 7)
    _launches.kept_verb.cache_clear()
    bridge = Pretended()
    for family, verb in itertools.product(FAMILIES.values(), KERNELS):
        if (verb, "CUDA") in family.kernels:
            compute_verb = on_device(bridge, KERNELS[verb][0])
            monkeypatch.setitem(family.kernels, (verb, "CUDA"), compute_verb)
    with emulator.active():
        yield names


def close(mine: Tensor, other: Any) -> None:
    np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-4)


def boxes_of(count: int) -> Tensor:
    corners = torch.rand(count, 2, 2, generator=torch.Generator().manual_seed(count)) * 20
    images = torch.arange(count) % 2
    return torch.cat([images[:, None], corners.sort(dim=1)[0].reshape(count, 4)], dim=1)


@pytest.mark.parametrize("is_recorded", [False, True], ids=["values", "recorded"])
@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=str)
def test_later_calls_of_roi_pool_are_small(
    general: list[str], is_recorded: bool, memory_format: torch.memory_format
) -> None:
    for count, shape in ((3, (2, 16, 9, 11)), (3, (2, 16, 9, 11)), (7, (2, 16, 20, 7))):
        features = maps(torch.float32, memory_format, shape=shape).requires_grad_(is_recorded)
        rois = boxes_of(count)
        pooled = roipool.roi_pool(features, rois, (3, 4), 0.5)
        expected, argmax = roipool.roi_pool(
            features.detach().numpy(), rois.numpy(), (3, 4), 0.5, return_argmax=True
        )
        np.testing.assert_array_equal(pooled.detach(), expected)
        if is_recorded:
            gradient = maps(torch.float32, memory_format, shape=pooled.shape)
            (mine,) = torch.autograd.grad(pooled, features, gradient)
            other = roipool.roi_pool_backward(gradient.numpy(), argmax, rois.numpy(), shape)
            close(mine, other)
    assert general == ["roi_pool"]


@pytest.mark.parametrize("is_recorded", [False, True], ids=["values", "recorded"])
@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=str)
def test_later_calls_of_pyramids_are_small(
    general: list[str], is_recorded: bool, memory_format: torch.memory_format
) -> None:
    """Neither the levels nor the sizes of maps are options."""
    options = (3, 4), SCALES, 2
    for count, shape in ((3, (2, 16, 9, 11)), (3, (2, 16, 9, 11)), (7, (2, 16, 20, 7))):
        shapes = [shape, (*shape[:2], 5, 6)]
        pyramid = [maps(torch.float32, memory_format, seed=k, shape=shapes[k]) for k in range(2)]
        rois, levels = boxes_of(count), torch.arange(count) % 2
        arrays = [each.numpy() for each in pyramid]
        expected = roipool.multilevel_roi_align(
            arrays, rois.numpy(), *options, levels=levels.numpy()
        )
        of_leaves = [each.requires_grad_(is_recorded) for each in pyramid]
        pooled = roipool.multilevel_roi_align(of_leaves, rois, *options, levels=levels)
        close(pooled.detach(), expected)
        if is_recorded:
            gradient = maps(torch.float32, memory_format, shape=pooled.shape)
            mine = torch.autograd.grad(pooled, of_leaves, gradient)
            others = roipool.multilevel_roi_align_backward(
                gradient.numpy(), rois.numpy(), shapes, *options[1:], levels=levels.numpy()
            )
            for one, other in zip(mine, others, strict=True):
                close(one, other)
    assert general == ["multilevel_roi_align"]


def test_no_call_is_small_without_functions_of_c(
    general: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before torch 2.10: as with tensors that they do not describe."""
    monkeypatch.setattr(_launches.READER, "device_type", -1)
    features, rois = maps(torch.float32).requires_grad_(), boxes_of(3)
    expected = roipool.roi_align(features.detach().numpy(), rois.numpy(), 3, 0.5, 2)
    for number in range(3):
        pooled = roipool.roi_align(features, rois, 3, 0.5, 2)
        close(pooled.detach(), expected)
        torch.autograd.grad(pooled.sum(), features)
        assert general == ["roi_align"] * (number + 1)


def test_torchvisions_pooler_is_one_launch(general: list[str]) -> None:
    """Within `override_torchvision`, one for all maps."""
    ops = pytest.importorskip("torchvision.ops")
    pooler = ops.MultiScaleRoIAlign(["0", "1"], 3, 2)
    for count in (5, 5, 9):
        named = {str(k): maps(torch.float32, shape=(1, 16, 64 >> k, 64 >> k)) for k in range(2)}
        corners = boxes_of(count)[:, 1:] * torch.tensor([1, 1, 30, 30])
        expected = pooler(named, [corners], [(256, 256)])
        driver.launched.clear()
        with roipool.torch.override_torchvision():
            close(pooler(named, [corners], [(256, 256)]), expected)
        assert [name for _, name in driver.launched] == ["average_forward"]
    assert general == ["multilevel_roi_align"]


@pytest.mark.parametrize("wrong", ["count", "type", "channels", "levels", "rows", "none", "boxes"])
def test_pyramids_that_are_not_small(general: list[str], wrong: str) -> None:
    """The general path computes them, or says what is wrong."""
    pyramid = [maps(torch.float32, shape=(2, 16, size, 11)) for size in (9, 5)]
    rois, levels = boxes_of(3), torch.tensor([0, 1, 0])
    for _ in range(2):
        roipool.multilevel_roi_align(pyramid, rois, 3, SCALES, 2, levels=levels)
    assert len(general) == 1
    others: dict[str, Any] = {
        "count": (pyramid[:1], rois, levels),
        "type": ([pyramid[0], pyramid[1].double()], rois, levels),
        "channels": ([pyramid[0], pyramid[1][:, :8]], rois, levels),
        "levels": (pyramid, rois, levels[:2]),
        "rows": (pyramid, rois[:, 1:], levels),
        "none": (pyramid, rois, None),
        "boxes": (pyramid, rois.clone().requires_grad_(), levels),
    }
    features, table, numbers = others[wrong]
    is_error = wrong not in ("none", "boxes")
    with pytest.raises((TypeError, ValueError)) if is_error else nullcontext():
        roipool.multilevel_roi_align(features, table, 3, SCALES, 2, levels=numbers)
    assert len(general) == 2
