"""Derivatives specific to torch: views within `vmap`, dual tensors, and errors."""

from __future__ import annotations

import pytest
import torch
from _support.loops import each
from _support.tensors import ALL_CASES as CASES
from _support.tensors import TensorCase, maps
from torch import Tensor
from torch.autograd import forward_ad

import roipool

# torch compiles a formula of its own, in forward mode, with what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")


def small_maps(case: TensorCase | None = None) -> Tensor:
    """Return maps of one channel, or of one for each of a case's groups of bins."""
    return maps(shape=(2, 1 if case is None else case.groups, 6, 7))


def test_vmap_of_gradients_that_are_views() -> None:
    """Within `vmap` it is unknown whether a tensor is channels last."""
    rois = torch.tensor([[0.0, 0, 0, 5, 5], [0, 1, 2, 3, 6]])
    for order in ((0, 1, 4, 2, 3), (1, 0, 2, 3, 4)):
        grads = maps(shape=(2, 2, 3, 2, 2)).permute(order).contiguous()
        grads = grads.permute([order.index(axis) for axis in range(5)])

        def backward(grad: Tensor) -> Tensor:
            return roipool.roi_align_backward(grad, rois, (1, 3, 7, 8))

        expected = torch.stack([backward(each) for each in grads])
        torch.testing.assert_close(torch.vmap(backward)(grads), expected)
        by_grad = torch.func.grad(lambda x, f=backward: torch.vmap(f)(x).square().sum())(grads)
        assert by_grad.any()


def test_dual_tensors_that_require_no_gradient() -> None:
    """Not even a call like an earlier one is computed without their tangents."""
    rois = torch.tensor([[0.0, 0, 0, 5, 5], [1, 1, 2, 3, 6]])
    features, change = maps(torch.float32), maps(torch.float32, seed=1)
    expected = roipool.roi_align(change, rois, 2)
    with forward_ad.dual_level():
        pooled = roipool.roi_align(forward_ad.make_dual(features, change), rois, 2)
        tangent = forward_ad.unpack_dual(pooled).tangent
    assert tangent is not None
    assert torch.equal(tangent, expected)


def test_second_derivative_of_a_maximum_in_the_first_cell() -> None:
    features = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    features[0, 0, 0, 0] = 1
    rois = torch.tensor([[0.0, 0, 0, 2, 2]])
    pooled = roipool.roi_pool(features.requires_grad_(), rois, 1)
    upstream = torch.ones_like(pooled).requires_grad_()
    (gradient,) = torch.autograd.grad(pooled, features, upstream, create_graph=True)
    change = torch.full_like(features, 3)
    (by_upstream,) = torch.autograd.grad(gradient, upstream, change)
    assert by_upstream.item() == 3


@pytest.mark.parametrize("wrong", [2.0, -1.0, 0.5, float("nan")])
def test_a_wrong_index_is_no_image_of_another_call(wrong: float) -> None:
    case = next(case for case in CASES if case.op.forward == "roi_align")
    features = torch.stack([maps(), maps(seed=1)])
    table = torch.tensor([[[wrong, 1.0, 1.0, 4.0, 4.0]]] * 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=rf"roi_align: .*call 0 .*box 0 is {wrong}"):
        torch.vmap(lambda x, rois: case.pool(x, rois, None))(features, table)


@pytest.mark.parametrize("wrong", [2, -1, 5])
@pytest.mark.parametrize("call", [0, 1, 2])
@each(column=[False, True], shape=["vmap", "vmap of the gradient"])
def test_a_wrong_index_of_one_call_is_named(
    column: bool, shape: str, call: int, wrong: int
) -> None:
    """An index beyond a call's images must not be an image of the next call."""
    features = torch.stack([maps(seed=n) for n in range(3)])
    boxes, indices = torch.tensor([[[1.0, 1, 4, 4]] * 2] * 3), torch.tensor([[0, 1]] * 3)
    indices[call, 1] = wrong
    rois = torch.cat([indices[..., None], boxes], 2)

    def pool(x: Tensor, numbers: Tensor, table: Tensor) -> Tensor:
        if column:
            return roipool.roi_align(x, table, 2)
        return roipool.roi_align(x, table[:, 1:], 2, batch_indices=numbers)

    function = pool
    if shape != "vmap":
        function = torch.func.grad(lambda *given: pool(*given).sum())
    with pytest.raises(ValueError, match=rf"roi_align: .*call {call} .*box 1 is {wrong}"):
        torch.vmap(function)(features, indices, rois)


# ---- What no kernel computes is an error, never zero


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_linear], ids=str)
def test_second_derivatives_by_an_argmax_of_samples_are_refused(case: TensorCase) -> None:
    features, boxes = small_maps(), case.boxes(3).requires_grad_()
    values, argmax = case.pool(features, boxes.detach(), case.indices(3), return_argmax=True)
    spread = roipool.roi_align_backward(
        values.requires_grad_(),
        boxes,
        features.shape,
        argmax=argmax,
        batch_indices=case.indices(3),
        **case.options(forward=False),
    )
    with pytest.raises(NotImplementedError, match="maximum of samples"):
        spread.sum().backward()


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.moves and c.op.forward != "roi_align"], ids=str
)
def test_boxes_of_whole_cells_get_no_gradient(case: TensorCase) -> None:
    """Boxes get no gradient, as in torchvision, rather than zeros."""
    features, boxes = small_maps(case).requires_grad_(), case.boxes(3).requires_grad_()
    pooled = case.pool(features, boxes, case.indices(3))
    pooled.sum().backward()
    assert boxes.grad is None
