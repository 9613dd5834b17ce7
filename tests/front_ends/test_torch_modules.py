"""Modules of `roipool.torch.nn`: the operations and torchvision's, compiled, recorded by fx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import Tensor

import roipool
import roipool.torch
from roipool import reference
from roipool.compat import mmcv
from roipool.torch import nn
from roipool.torch.nn import RiRoIAlignRotated

X = torch.arange(2 * 3 * 20 * 24, dtype=torch.float32).reshape(2, 3, 20, 24) / 7
ROIS = torch.tensor([[0, 1.0, 1, 30, 40], [1, 20.0, 2, 60, 60]])
OFFSETS = torch.linspace(-1, 1, 36).reshape(2, 2, 3, 3)

MODULES: dict[str, tuple[Callable[[], torch.nn.Module], tuple[Any, ...]]] = {
    "RoIAlign": (lambda: nn.RoIAlign(3, 0.25, 2), (X, ROIS)),
    "RoIAlign, two scales": (lambda: nn.RoIAlign(3, (0.25, 0.2), 2), (X, ROIS)),
    "RoIPool": (lambda: nn.RoIPool(3, 0.25), (X, ROIS)),
    "RoIAlignRotated": (
        lambda: nn.RoIAlignRotated(3, 0.25, 2),
        (X, torch.cat([ROIS, torch.tensor([[0.3], [-2.0]])], dim=1)),
    ),
    "RiRoIAlignRotated": (
        lambda: nn.RiRoIAlignRotated(3, 0.25, 2, 1),
        (X, torch.cat([ROIS, torch.tensor([[0.3], [-2.0]])], dim=1)),
    ),
    "PSRoIPool": (lambda: nn.PSRoIPool(3, 0.25, 1), (X, ROIS)),
    "PSRoIAlign": (lambda: nn.PSRoIAlign(3, 0.25, 2, group_size=1), (X, ROIS)),
    "DeformRoIPool": (lambda: nn.DeformRoIPool(3, 0.25, 2), (X, ROIS, OFFSETS)),
    "PrRoIPool": (lambda: nn.PrRoIPool(3, 0.25), (X, ROIS)),
    "PrRoIPool2D": (lambda: nn.PrRoIPool2D(3, 2, 0.25), (X, ROIS)),
    "CropAndResize": (
        lambda: nn.CropAndResize(3),
        (X, ROIS[:, 1:] / 60, torch.tensor([0, 1])),
    ),
    "MultiScaleRoIAlign": (
        lambda: nn.MultiScaleRoIAlign(["a", "b"], 3, 2),
        ({"a": X, "b": X[:, :, ::2, ::2]}, [ROIS[:1, 1:], ROIS[1:, 1:]], [(80, 96), (70, 80)]),
    ),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MODULES)
def test_modules_compile_before_they_are_called(name: str, dynamic: bool | None) -> None:
    make, arguments = MODULES[name]
    torch._dynamo.reset()
    program = torch.compile(make(), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    assert torch.equal(program(*arguments), make()(*arguments))


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_recorded_as_one_call(name: str) -> None:
    make, arguments = MODULES[name]
    graph = torch.fx.symbolic_trace(make())
    assert torch.equal(graph(*arguments), make()(*arguments))
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert sum("roipool" in str(node.target.__module__) for node in calls) == 1


def boxes(count: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(count, 2, generator=generator) * 15
    size = torch.rand(count, 2, generator=generator) * 8
    return torch.cat([(torch.arange(count) % 2)[:, None], first, first + size], 1)


def test_modules_are_torchvisions() -> None:
    ops = pytest.importorskip("torchvision.ops", reason="torchvision is not installed")
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    lists = [rois[rois[:, 0] == image][:, 1:] for image in range(2)]
    for form in (rois, lists):
        torch.testing.assert_close(
            nn.RoIAlign(output_size=3, spatial_scale=0.5, sampling_ratio=-1, aligned=False)(
                features, form
            ),
            ops.RoIAlign(output_size=3, spatial_scale=0.5, sampling_ratio=-1)(features, form),
        )
        torch.testing.assert_close(
            nn.RoIPool(output_size=(2, 3), spatial_scale=0.5)(features, form),
            ops.RoIPool(output_size=(2, 3), spatial_scale=0.5)(features, form),
        )
    crop = nn.CropAndResize((2, 3), extrapolation_value=1.0)
    corners, indices = torch.rand(4, 4), torch.tensor([0, 1, 1, 0])
    expected = roipool.crop_and_resize(
        features.numpy(), corners.numpy(), indices.numpy(), (2, 3), extrapolation_value=1.0
    )
    assert torch.equal(crop(features, corners, indices), torch.from_numpy(expected))
    assert "sampling_ratio=0, pool_mode='max'" in repr(nn.RoIAlign(7, pool_mode="max"))


def test_a_pyramid_takes_the_scales_of_its_maps() -> None:
    """The first picture is low and wide: torchvision's scales of its padded maps are too large."""
    scales = (1 / 4, 1 / 8)
    maps = [torch.rand(1, 2, 32 // 4, 128 // 4), torch.rand(1, 2, 32 // 8, 128 // 8)]
    table = torch.tensor([[60.0, 2, 80, 9], [0, 0, 99, 31]])
    module = nn.MultiScaleRoIAlign(["a", "b"], 2, 2, canonical_scale=28, scales=scales)
    pooled = module({"a": maps[0], "b": maps[1]}, [table], [(11, 100)])
    for box, level in zip(table, (0, 1), strict=True):
        number = int((table == box).all(1).nonzero())
        expected = reference.roi_align(
            maps[level].numpy(), [[0, *box.tolist()]], 2, scales[level], 2, aligned=False
        )
        np.testing.assert_allclose(pooled[number : number + 1], expected, rtol=1e-5)
    assert module.scales == [*scales]


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (
            (0.25, 0.25),
            r"scales must be powers of two, each half of the one before, got \[0.25, 0.2",
        ),
        ((0.25, "a"), r"scales\[1\] must be a real number"),
        (0.25, "scales must be a list or tuple, got float"),
        ((0.5,), "scales must hold one number per map: got 1 for 2"),
    ],
)
def test_wrong_scales_are_named(scales: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        nn.MultiScaleRoIAlign(["a", "b"], 2, 2, scales=scales)


def test_packs_predict_offsets_and_a_mask() -> None:
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    plain = roipool.roi_align(features, rois, 3, 0.5)
    pack = nn.DeformRoIPoolPack(3, 4, 8, 0.5)
    torch.testing.assert_close(pack(features, rois), plain)
    modulated = nn.ModulatedDeformRoIPoolPack(3, 4, 8, 0.5)
    torch.testing.assert_close(modulated(features, rois), plain / 2)
    layers = [f"offset_fc.{number}" for number in (0, 2, 4)]
    masks = [f"mask_fc.{number}" for number in (0, 2)]
    for module, names in ((pack, layers), (modulated, layers + masks)):
        expected = {f"{name}.{kind}" for name in names for kind in ("weight", "bias")}
        assert module.state_dict().keys() == expected  # mmcv's
        module(features, rois).square().sum().backward()
        assert all(module.get_parameter(f"{name}.bias").grad.any() for name in names if "4" in name)
    assert "gamma=0.1" in repr(pack)


def test_modules_are_the_operations() -> None:
    ops = pytest.importorskip("torchvision.ops", reason="torchvision is not installed")
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    turned = torch.cat([rois, torch.linspace(-3, 3, len(rois))[:, None]], dim=1)
    offsets = torch.randn(len(rois), 2, 3, 3)
    pairs = [
        (nn.PrRoIPool(3, 0.5)(features, rois), roipool.precise_roi_pool(features, rois, 3, 0.5)),
        (
            nn.PrRoIPool2D(3, 2, 0.5)(features, rois),
            roipool.precise_roi_pool(features, rois, (3, 2), 0.5),
        ),
        (
            nn.RoIAlignRotated(3, 0.5, -1, aligned=False, clockwise=True)(features, turned),
            roipool.roi_align_rotated(features, turned, 3, 0.5, aligned=False, clockwise=True),
        ),
        (
            nn.PSRoIPool((2, 1), 0.5)(features, rois),
            roipool.ps_roi_pool(features, rois, (2, 1), 0.5),
        ),
        (
            nn.PSRoIAlign(3, 0.5, -1, False, (1, 2))(features, rois),
            roipool.ps_roi_align(features, rois, 3, 0.5, aligned=False, group_size=(1, 2)),
        ),
        (
            nn.DeformRoIPool(3, 0.5, -1, 0.2)(features, rois, offsets),
            roipool.deform_roi_pool(features, rois, offsets, 3, 0.5, gamma=0.2),
        ),
        (
            nn.DeformRoIPool(3, (0.5, 0.4), -1)(features, rois, offsets),
            roipool.deform_roi_pool(features, rois, offsets, 3, (0.5, 0.4)),
        ),
        (nn.DeformRoIPool(3, 0.5)(features, rois), roipool.roi_align(features, rois, 3, 0.5)),
    ]
    for module, operation in pairs:
        assert torch.equal(module, operation)
    assert repr(nn.PrRoIPool2D(3, 2, 0.5)) == "PrRoIPool2D(kernel_size=(3, 2), spatial_scale=0.5)"
    aligned = nn.PSRoIAlign(2, 0.5, 2)(features, rois)
    torch.testing.assert_close(aligned, ops.ps_roi_align(features, rois, 2, 0.5, 2))
    assert "aligned=True, clockwise=False" in repr(nn.RoIAlignRotated(3, 0.5))
    assert "spatial_scale=0.5, group_size=(1, 2)" in repr(nn.PSRoIPool(3, 0.5, (1, 2)))
    assert "sampling_ratio=2, aligned=True, group_size=0" in repr(nn.PSRoIAlign(3, 0.5, 2))


# ---- mmcv's rotation-invariant ROI align

RNG = np.random.default_rng(4)


def rotated_problem(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return maps and boxes, some over the edge, at any angle and at none."""
    features = torch.from_numpy(RNG.standard_normal((2, 8, 12, 14))).to(dtype)
    rois = RNG.uniform([0, 0, 0, 0.1, 0.1, -7], [1, 14, 12, 9, 9, 7], (12, 6))
    rois[:, 0], rois[0, 5] = np.arange(12) % 2, 0
    return features, torch.from_numpy(rois).float()


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_rotation_invariant_align_is_the_function(count: int, clockwise: bool) -> None:
    features, rois = rotated_problem()
    features.requires_grad_()
    module = RiRoIAlignRotated((3, 2), 0.5, 2, count, clockwise)
    pooled = module(features, rois)
    options = (0.5, 2, count, clockwise)
    expected = mmcv.riroi_align_rotated(features.detach().numpy(), rois.numpy(), (3, 2), *options)
    np.testing.assert_allclose(pooled.detach().numpy(), expected, rtol=0, atol=1e-6)
    grad = torch.from_numpy(RNG.standard_normal(pooled.shape)).float()
    pooled.backward(grad)
    by_features = mmcv.riroi_align_rotated_backward(
        grad.numpy(), rois.numpy(), tuple(features.shape), *options
    )
    assert features.grad is not None
    np.testing.assert_allclose(features.grad.numpy(), by_features, rtol=0, atol=1e-5)


def test_its_gradients_are_derivatives() -> None:
    features, rois = (one.double() for one in rotated_problem())
    features.requires_grad_()
    rois[0, 5] = 0.3  # mmcv's values jump at whole orientations, 0 among them
    angles = rois[:, 5:].clone().requires_grad_()
    module = RiRoIAlignRotated(2, 0.5, 2, 4)

    def call(features: Tensor, angles: Tensor) -> Tensor:
        return module(features, torch.cat([rois[:, :5], angles], dim=1))

    assert torch.autograd.gradcheck(call, (features, angles), eps=1e-7, atol=1e-4)


def test_its_bad_options() -> None:
    features, rois = rotated_problem()
    with pytest.raises(ValueError, match="num_orientations must be at least 1, got 0"):
        RiRoIAlignRotated(2, 0.5, 2, 0)
    with pytest.raises(ValueError, match="a multiple of 3 channels"):
        RiRoIAlignRotated(2, 0.5, 2, 3)(features, rois)
    assert "num_orientations=8, clockwise=False" in repr(RiRoIAlignRotated(2, 0.5))
