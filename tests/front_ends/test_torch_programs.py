"""Compiled, exported and traced programs: their operators, and the operators' formulas."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from _support.loops import each
from _support.operators import forward_request, requests
from _support.tensors import ALL_CASES, CASES, FORMATS, SIZE, TensorCase, maps
from torch import Tensor
from torch.autograd import forward_ad
from torch.export import Dim

import roipool
import roipool.torch

# torch compiles a formula of its own, in forward mode, with what it deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit",
    "ignore:The .grad attribute of a Tensor",  # which torch's own check hides where it is shown
)

every_case = pytest.mark.parametrize("case", ALL_CASES, ids=str)
# Compilers take seconds for each program, and operators' formulas do not depend on how many samples
# a bin has.
FIXED = [case for case in ALL_CASES if not case.adaptive]
fixed = pytest.mark.parametrize("case", FIXED, ids=str)
ALIGN = next(case for case in CASES if case.op.forward == "roi_align")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Clear compiled programs."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


# ---- Operators


# Channels last: one average and one maximum.
def in_both_formats(case: TensorCase, memory_format: torch.memory_format) -> bool:
    both = ("roi_align, avg", "roi_pool, max")
    return memory_format is torch.contiguous_format or case.name in both


@fixed
@each(in_both_formats, memory_format=FORMATS)
def test_operators_pass_torchs_own_check(
    case: TensorCase, memory_format: torch.memory_format
) -> None:
    """Check schema, registration of autograd, fake tensors, and traces with dynamic shapes."""
    features = maps(torch.float32, memory_format)
    gradient = maps(torch.float32, memory_format, shape=(5, 3 // case.groups, *SIZE))
    for request in requests(
        case, features, gradient, case.boxes(dtype=torch.float32), case.indices()
    ):
        args = request.args
        if request.verb != "average_backward_boxes":  # whose own derivatives are no derivatives
            args = (*map(leaf, args[:1]), *args[1:])
        if request.verb == "average" and case.moves:
            args = request._replace(args=args).replaced(1, leaf(args[1])).args
        if request.verb == "maximum_backward" and not case.is_linear:
            args = request.args
        torch.library.opcheck(request.overload, args)


def leaf(value: Any) -> Any:
    """Return a tensor, or a list of such, for which a gradient is required."""
    if isinstance(value, list):
        return [*map(leaf, value)]
    return value.detach().clone(memory_format=torch.preserve_format).requires_grad_()


def test_operators_are_differentiable_without_a_compiler() -> None:
    """The operators, called like in a loaded program."""
    boxes, indices = ALIGN.boxes(3).requires_grad_(), ALIGN.indices(3)
    request = forward_request(ALIGN, maps(shape=(2, 1, 6, 7)), boxes.detach(), indices)

    def pool(features: Tensor, corners: Tensor) -> Tensor:
        found: Tensor = request.overload(features, corners, *request.args[2:])
        return found

    features = maps(shape=(2, 1, 6, 7)).requires_grad_()
    assert torch.autograd.gradcheck(pool, (features, boxes))
    assert torch.autograd.gradgradcheck(lambda x: pool(x, boxes.detach()), (features,))
    batch = torch.stack([features.detach(), features.detach() + 1])
    got = torch.vmap(lambda x: pool(x, boxes.detach()))(batch)
    torch.testing.assert_close(got[1], pool(batch[1], boxes))
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.gradgradcheck(lambda b: pool(features.detach(), b), (boxes,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_take_whole_tables(dtype: torch.dtype) -> None:
    """Batch indices in the first column have no gradient; whole numbers have one of the maps."""
    boxes, indices = ALIGN.boxes(3, dtype), ALIGN.indices(3)
    features, grad = maps(dtype), maps(dtype, shape=(3, 3, *SIZE))
    (request,) = [
        each
        for each in requests(ALIGN, features, grad, boxes, indices)
        if each.verb == "average_backward_boxes"
    ]
    own = request.args[4:]

    def by_table(table: Tensor, *tensors: Tensor) -> Tensor:
        found: Tensor = request.overload(*tensors, table, None, *own)
        return found

    tables = torch.cat([indices[:, None], boxes], 1).round() + torch.arange(2)[:, None, None]
    tables[..., 0] %= 2
    for table in (tables, tables.long()):
        found = torch.vmap(by_table, (0, None, None))(table, grad, features)
        assert found.dtype is dtype
        assert not found[..., 0].any()
        for one, whole in zip(found, table, strict=True):
            given = grad.numpy(), features.numpy(), whole[:, 1:].numpy(), whole[:, 0].numpy()
            assert (one[:, 1:].numpy() == ALIGN.box_gradient(*given)).all()


# ---- torch.compile


def losses(
    case: TensorCase, compiled: Any, features: Tensor, boxes: Tensor, indices: Tensor
) -> Any:
    """Return the loss and its gradients."""
    leaves = [features.clone(memory_format=torch.preserve_format).requires_grad_()]
    corners = boxes.clone()
    if case.moves:
        leaves.append(corners.requires_grad_())
    loss = compiled(leaves[0], corners, indices)
    return (loss.detach(), *torch.autograd.grad(loss, leaves))


@every_case
@each(in_both_formats, memory_format=FORMATS)
def test_compiled_forward_and_backward(
    case: TensorCase, memory_format: torch.memory_format
) -> None:
    def program(features: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
        return case.pool(torch.relu(features), boxes, indices).square().sum()

    torch.compiler.reset()
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    inputs = maps(memory_format=memory_format), case.boxes(), case.indices()
    for got, expected in zip(
        losses(case, compiled, *inputs), losses(case, program, *inputs), strict=True
    ):
        assert torch.equal(got, expected)


@fixed
def test_compiled_public_gradients(case: TensorCase) -> None:
    """Gradient functions within a compiled program."""
    features, boxes, indices = maps(), case.boxes(), case.indices()
    more = {"return_argmax": True} if case.variant.has_argmax else {}
    pooled = case.pool(features, boxes, indices, **more)
    values, argmax = pooled if more else (pooled, None)

    def gradients(values: Tensor, features: Tensor, boxes: Tensor) -> list[Tensor]:
        found = case.gradient(values, argmax, boxes, indices, features.shape)
        results = [*found] if isinstance(found, (list, tuple)) else [found]
        if case.moves:
            results.append(case.box_gradient(values, features, boxes, indices))
        return results

    torch.compiler.reset()
    compiled = torch.compile(gradients, fullgraph=True, backend="aot_eager")
    for got, expected in zip(
        compiled(values, features, boxes), gradients(values, features, boxes), strict=True
    ):
        assert torch.equal(got, expected)


def test_counts_that_depend_on_values() -> None:
    """A program selects boxes, so their number is unknown to the compiler."""

    def program(features: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
        kept = torch.nonzero(boxes[:, 0] > 1.0)[:, 0]
        return ALIGN.pool(features.relu(), boxes[kept], indices[kept]).square().sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
        for memory_format in FORMATS.values():
            features = maps(memory_format=memory_format)
            inputs = features, ALIGN.boxes(9), ALIGN.indices(9)
            got, expected = (losses(ALIGN, each, *inputs) for each in (compiled, program))
            assert all(map(torch.equal, got, expected))


@pytest.mark.thorough
@each(memory_format=FORMATS)
def test_inductor(memory_format: torch.memory_format) -> None:
    """The default compiler, which writes C++ and takes half a minute."""
    torch.compiler.reset()
    layer = torch.nn.Conv2d(3, 4, 3, padding=1).double()

    def program(features: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
        return ALIGN.pool(layer(features), boxes, indices).square().sum()

    inputs = maps(memory_format=memory_format), ALIGN.boxes(), ALIGN.indices()
    compiled = torch.compile(program, fullgraph=True)
    for got, expected in zip(
        losses(ALIGN, compiled, *inputs), losses(ALIGN, program, *inputs), strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_errors_within_a_compiled_program_name_the_operation() -> None:
    compiled = torch.compile(
        lambda x, b, i: ALIGN.pool(x, b, i), fullgraph=True, backend="aot_eager"
    )
    boxes, indices = ALIGN.boxes(), ALIGN.indices()
    with pytest.raises(ValueError, match=r"roi_align: batch_indices\[0\] is 2"):
        compiled(maps(), boxes, indices + 2)
    with pytest.raises(Exception, match="roi_align: features must have dtype"):
        compiled(maps().int(), boxes, indices)
    with pytest.raises(Exception, match="roi_align: rois must be on the device"):
        compiled(maps(), boxes.to("meta"), indices)


def test_a_size_that_is_a_tensor_is_refused() -> None:
    def program(features: Tensor, rois: Tensor, size: Tensor) -> Tensor:
        return roipool.roi_align(features, rois, size)

    rois = torch.tensor([[0, 1, 1, 4, 4.0]])
    for function in (program, torch.compile(program, fullgraph=True, backend="aot_eager")):
        with pytest.raises(Exception, match="roi_align"):
            function(maps(), rois, torch.tensor(2))


# ---- What compiled and exported programs do not differentiate is an error, never zero

NO_FORWARD_MODE = "roi_align: no forward mode here: compiled and exported programs have none"
BOXES, INDICES = ALIGN.boxes(), ALIGN.indices()


def pooled(features: Tensor) -> Tensor:
    return ALIGN.pool(features, BOXES, INDICES)


def change_of(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function that computes a forward-mode derivative in the direction of the maps."""
    return lambda features: torch.func.jvp(function, (features,), (features,))[1]


def test_forward_mode_of_compiled_programs_is_refused() -> None:
    """Torch would drop the tangents of operators."""
    features, expected = maps(), pooled(maps())
    inside = torch.compile(change_of(pooled), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=NO_FORWARD_MODE):
        inside(features)
    torch.compiler.reset()
    compiled = torch.compile(pooled, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(features), expected)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=NO_FORWARD_MODE):
        compiled(forward_ad.make_dual(features, features))


def test_forward_mode_of_exported_programs_is_refused() -> None:
    inputs = (maps(), ALIGN.boxes(), ALIGN.indices())
    loaded = torch.export.export(Head(ALIGN), inputs, strict=False).module()
    with pytest.raises(NotImplementedError, match=NO_FORWARD_MODE):
        change_of(lambda features: loaded(features, *inputs[1:]))(inputs[0])


def test_double_backward_of_compiled_programs_is_refused() -> None:
    compiled = torch.compile(pooled, fullgraph=True, backend="aot_eager")
    leaf = maps().requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(leaf).square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_torch_func_within_compiled_programs_is_refused() -> None:
    """torch rejects operators with Python formulas there (pytorch#168393)."""
    program = torch.func.grad(lambda features: pooled(features).square().sum())
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="setup_context"):
        compiled(maps())


# ---- torch.export


class Head(torch.nn.Module):
    """A layer, a pooling, another layer."""

    def __init__(self, case: TensorCase) -> None:
        super().__init__()
        self.case = case
        self.weight = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def forward(self, features: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
        return self.case.pool(features * self.weight, boxes, indices) * 2


@fixed
@each(lambda case, strict: not strict or case is ALIGN, strict=(False, True))
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
def test_exported_program_and_its_gradient(case: TensorCase, strict: bool) -> None:
    torch.compiler.reset()
    inputs = (maps(), case.boxes(), case.indices())
    count = Dim("count", min=0, max=10000)
    program = torch.export.export(
        Head(case), inputs, strict=strict, dynamic_shapes=(None, {0: count}, {0: count})
    )
    assert any("roipool" in str(node.target) for node in program.graph.nodes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded, head = torch.export.load(file).module(), Head(case)
    others = (maps(), case.boxes(8, seed=3), case.indices(8))
    for module in (loaded, head):
        module(*others).square().sum().backward()
    assert torch.equal(loaded(*others), head(*others))
    (gradient,) = (parameter.grad for parameter in loaded.parameters())
    assert torch.equal(gradient, head.weight.grad)


def test_traced_by_make_fx() -> None:
    """With plain tensors, the fast path must not bypass the trace."""
    from torch.fx.experimental.proxy_tensor import make_fx

    boxes, indices = ALIGN.boxes(), ALIGN.indices()

    def gradient(features: Tensor) -> Tensor:
        return torch.func.grad(lambda x: ALIGN.pool(x, boxes, indices).square().sum())(features)

    for mode in ("real", "fake"):
        for function in (pooled, gradient, change_of(pooled)):
            graph = make_fx(function, tracing_mode=mode, _allow_non_fake_inputs=True)(maps())
            assert any("roipool" in str(node.target) for node in graph.graph.nodes)
            torch.testing.assert_close(graph(maps(seed=2)), function(maps(seed=2)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_by_torchscript() -> None:
    """torch.jit.trace is deprecated, but old exporters use it: no value may become a constant."""
    arguments = (maps(), ALIGN.boxes(), ALIGN.indices())
    traced = torch.jit.trace(ALIGN.pool, arguments, check_trace=False)
    others = (maps(seed=3), ALIGN.boxes(seed=4), ALIGN.indices())
    assert torch.equal(traced(*others), ALIGN.pool(*others))
