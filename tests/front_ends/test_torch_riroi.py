"""mmcv's rotation-invariant ROI align in PyTorch: the results and gradients of `compat.mmcv`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from roipool.compat import mmcv
from roipool.torch.nn import RiRoIAlignRotated

RNG = np.random.default_rng(4)


def problem(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return maps and boxes, some over the edge, at any angle and at none."""
    features = torch.from_numpy(RNG.standard_normal((2, 8, 12, 14))).to(dtype)
    rois = RNG.uniform([0, 0, 0, 0.1, 0.1, -7], [1, 14, 12, 9, 9, 7], (12, 6))
    rois[:, 0], rois[0, 5] = np.arange(12) % 2, 0
    return features, torch.from_numpy(rois).float()


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_it_is_the_function(count: int, clockwise: bool) -> None:
    features, rois = problem()
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


def test_gradients_are_derivatives() -> None:
    features, rois = (one.double() for one in problem())
    features.requires_grad_()
    rois[0, 5] = 0.3  # mmcv's values jump at whole orientations, 0 among them
    angles = rois[:, 5:].clone().requires_grad_()
    module = RiRoIAlignRotated(2, 0.5, 2, 4)

    def call(features: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        return module(features, torch.cat([rois[:, :5], angles], dim=1))

    assert torch.autograd.gradcheck(call, (features, angles), eps=1e-7, atol=1e-4)


def test_bad_options() -> None:
    features, rois = problem()
    with pytest.raises(ValueError, match="num_orientations must be at least 1, got 0"):
        RiRoIAlignRotated(2, 0.5, 2, 0)
    with pytest.raises(ValueError, match="a multiple of 3 channels"):
        RiRoIAlignRotated(2, 0.5, 2, 3)(features, rois)
    assert "num_orientations=8, clockwise=False" in repr(RiRoIAlignRotated(2, 0.5))
