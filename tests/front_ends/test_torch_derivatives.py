"""Derivatives of every order and mode: finite differences, torch.func, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from _support.pairwise import each
from _support.tensors import ALL_CASES as CASES
from _support.tensors import Case, maps
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import roipool

# torch compiles a formula of its own, in forward mode, with what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

every_case = pytest.mark.parametrize("case", CASES, ids=str)
linear = pytest.mark.parametrize("case", [case for case in CASES if case.is_linear], ids=str)
moving = pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)


def of_features(case: Case) -> Callable[[Tensor], Tensor]:
    boxes, indices = case.boxes(3), case.indices(3)
    return lambda features: case.pool(features, boxes, indices)


def small_maps() -> Tensor:
    return maps(shape=(2, 1, 6, 7))


@every_case
def test_gradient_of_features(case: Case) -> None:
    assert gradcheck(of_features(case), small_maps().requires_grad_(), check_batched_grad=True)


@linear
def test_forward_mode(case: Case) -> None:
    function, features = of_features(case), small_maps().requires_grad_()
    assert gradcheck(
        function, features, check_forward_ad=True, check_backward_ad=False,
        check_batched_forward_grad=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.is_linear and not case.adaptive], ids=str
)
def test_second_derivatives(case: Case) -> None:
    function, features = of_features(case), small_maps().requires_grad_()
    upstream = function(features).detach().requires_grad_()
    assert gradgradcheck(
        function, features, upstream, check_batched_grad=True, check_fwd_over_rev=True,
        check_rev_over_rev=True,
    )  # fmt: skip


@moving
def test_gradient_of_boxes(case: Case) -> None:
    indices = case.indices(3)
    assert gradcheck(
        lambda features, boxes: case.pool(features, boxes, indices),
        (small_maps().requires_grad_(), case.boxes(3).requires_grad_()),
        check_batched_grad=True,
    )


@moving
def test_mixed_second_derivative(case: Case) -> None:
    """The gradient by features, by boxes again: no more than the first kernels."""
    features, indices = small_maps(), case.indices(3)
    upstream = torch.randn_like(of_features(case)(features))

    def gradient(boxes: Tensor) -> Tensor:
        leaf = features.clone().requires_grad_()
        pooled = case.pool(leaf, boxes, indices)
        return torch.autograd.grad(pooled, leaf, upstream, create_graph=True)[0]

    assert gradcheck(gradient, case.boxes(3).requires_grad_())


# ---- torch.func


@linear
def test_torch_func(case: Case) -> None:
    function, features = of_features(case), small_maps()
    other = features.flip(2)

    def loss(maps: Tensor) -> Tensor:
        return function(maps).square().sum()

    leaf = features.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    assert torch.equal(torch.func.grad(loss)(features), expected)
    both = torch.vmap(torch.func.grad(loss))(torch.stack([features, other]))
    torch.testing.assert_close(both[0], expected)
    torch.testing.assert_close(both[1], torch.func.grad(loss)(other))
    (product,) = torch.autograd.grad(expected, leaf, other)
    torch.testing.assert_close(
        torch.func.jvp(torch.func.grad(loss), (features,), (other,))[1], product
    )
    torch.testing.assert_close(
        torch.func.jacfwd(function)(features), torch.func.jacrev(function)(features)
    )


@moving
def test_torch_func_of_boxes(case: Case) -> None:
    features, boxes, indices = small_maps(), case.boxes(3), case.indices(3)

    def loss(maps: Tensor, corners: Tensor) -> Tensor:
        return case.pool(maps, corners, indices).square().sum()

    leaves = features.clone().requires_grad_(), boxes.clone().requires_grad_()
    expected = torch.autograd.grad(loss(*leaves), leaves)
    got = torch.func.grad(loss, argnums=(0, 1))(features, boxes)
    assert all(map(torch.equal, got, expected))


IN_DIMS = [(0, None, None), (None, 0, None), (0, 0, None), (0, 0, 0), (2, 1, None), (None, 0, 1)]


@every_case
@pytest.mark.parametrize("in_dims", IN_DIMS, ids=str)
def test_vmap_is_a_loop(case: Case, in_dims: tuple[int | None, ...]) -> None:
    """Forward and gradients of a batch are those of its calls, whatever has the batch."""
    calls = 3
    made = [
        (maps(seed=seed), case.boxes(seed=seed), (case.indices() + seed) % 2)
        for seed in range(calls)
    ]
    arguments = [
        made[0][place] if dim is None else torch.stack([call[place] for call in made], dim)
        for place, dim in enumerate(in_dims)
    ]

    def single(number: int, place: int) -> Tensor:
        return made[0 if in_dims[place] is None else number][place]

    def loss(features: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
        return (case.pool(features, boxes, indices) ** 2).sum()

    differentiable = (0, 1) if case.moves else 0
    gradient = torch.func.grad(loss, argnums=differentiable)
    for function in (case.pool, gradient):
        got = torch.vmap(function, in_dims)(*arguments)
        for number in range(calls):
            expected = function(*(single(number, place) for place in range(3)))
            results = (got, expected) if isinstance(got, tuple) else ((got,), (expected,))
            for batched, alone in zip(*results, strict=True):
                torch.testing.assert_close(batched[number], alone)


@every_case
@pytest.mark.parametrize("in_dims", IN_DIMS, ids=str)
def test_vmap_of_no_calls(case: Case, in_dims: tuple[int | None, ...]) -> None:
    alone = maps(), case.boxes(), case.indices()
    none = [
        value if dim is None else torch.stack([value], dim).narrow(dim, 0, 0)
        for value, dim in zip(alone, in_dims, strict=True)
    ]
    gradient = torch.func.grad(lambda *arguments: case.pool(*arguments).square().sum())
    for function in (case.pool, gradient):
        got = torch.vmap(function, in_dims)(*none)
        assert got.shape == (0, *function(*alone).shape)


def test_vmap_of_gradients_that_are_views() -> None:
    """Within `vmap` a tensor does not tell whether it lies channels last."""
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


def test_vmap_of_tables() -> None:
    """Boxes with their batch indices in one table."""
    case = next(case for case in CASES if case.op.forward == "roi_align")
    features = torch.stack([maps(seed=seed) for seed in range(3)])
    tables = torch.stack(
        [
            torch.cat([case.indices()[:, None].double(), case.boxes(seed=seed)], 1)
            for seed in range(3)
        ]
    )
    got = torch.vmap(lambda x, table: case.pool(x, table, None))(features, tables)
    for number in range(3):
        expected = case.pool(features[number], tables[number], None)
        assert torch.equal(got[number], expected)

    def loss(x: Tensor, table: Tensor) -> Tensor:
        return case.pool(x, table, None).square().sum()

    slopes = torch.vmap(torch.func.grad(loss, argnums=1))(features, tables)
    torch.testing.assert_close(slopes[1], torch.func.grad(loss, argnums=1)(features[1], tables[1]))


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


@moving
def test_second_derivatives_through_boxes_are_refused(case: Case) -> None:
    indices = case.indices(3)
    features, boxes = small_maps().requires_grad_(), case.boxes(3).requires_grad_()
    loss = case.pool(features, boxes, indices).square().sum()
    (slopes,) = torch.autograd.grad(loss, boxes, create_graph=True)
    with pytest.raises(NotImplementedError, match=f"{case.op.forward}.*second derivatives"):
        torch.autograd.grad(slopes.sum(), features)

    def of_boxes(corners: Tensor) -> Tensor:
        return case.pool(features.detach(), corners, indices).square().sum()

    with pytest.raises(NotImplementedError, match=f"{case.op.forward}.*boxes"):
        torch.func.hessian(of_boxes)(boxes.detach())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.moves or case.op.forward == "roi_align"], ids=str
)
def test_forward_mode_through_boxes_is_refused(case: Case) -> None:
    features, boxes, indices = small_maps(), case.boxes(3), case.indices(3)
    with pytest.raises(NotImplementedError, match=f"{case.op.forward}.*boxes"):
        torch.func.jvp(lambda b: case.pool(features, b, indices), (boxes,), (boxes,))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(boxes, torch.ones_like(boxes))
        with pytest.raises(NotImplementedError, match=f"{case.op.forward}.*boxes"):
            case.pool(features, dual, indices)


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_linear], ids=str)
def test_derivatives_of_a_maximum_of_samples_that_are_refused(case: Case) -> None:
    function, features = of_features(case), small_maps()
    with pytest.raises(NotImplementedError, match="maximum of samples"):
        torch.func.jvp(function, (features,), (features,))
    leaf = features.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf).square().sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="maximum of samples"):
        gradient.sum().backward()
    boxes = case.boxes(3).requires_grad_()
    pooled = case.pool(features, boxes, case.indices(3))
    with pytest.raises(NotImplementedError, match="maximum of samples"):
        pooled.sum().backward()
    values, argmax = case.pool(features, boxes.detach(), case.indices(3), return_argmax=True)
    spread = roipool.roi_align_backward(
        values.requires_grad_(), boxes, features.shape, argmax=argmax,
        batch_indices=case.indices(3), **case.options(forward=False),
    )  # fmt: skip
    with pytest.raises(NotImplementedError, match="maximum of samples"):
        spread.sum().backward()


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.moves and c.op.forward != "roi_align"], ids=str
)
def test_whole_cells_do_not_move_with_boxes(case: Case) -> None:
    """Their derivative is 0 almost everywhere: boxes get no gradient, as from torchvision."""
    features, boxes = small_maps().requires_grad_(), case.boxes(3).requires_grad_()
    pooled = case.pool(features, boxes, case.indices(3))
    pooled.sum().backward()
    assert boxes.grad is None
    maps_only, both = (features.detach(),), (features.detach(), boxes.detach())
    expected = torch.func.jvp(of_features(case), maps_only, maps_only)[1]
    got = torch.func.jvp(lambda x, b: case.pool(x, b, case.indices(3)), both, both)[1]
    assert torch.equal(got, expected)
