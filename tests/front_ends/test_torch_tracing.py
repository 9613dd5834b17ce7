"""Compiled programs with varying numbers, programs recorded by torch.fx, and profilers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from _support.cases import in_planes
from _support.tensors import ALL_CASES, PyramidTensorCase, TensorCase, VolumeTensorCase, maps
from torch import Tensor

import roipool
import roipool.torch

X = torch.arange(2 * 3 * 20 * 24, dtype=torch.float32).reshape(2, 3, 20, 24) / 7
ROIS = torch.tensor([[0, 1.0, 1, 30, 40], [1, 20.0, 2, 60, 60]])
FIXED = [case for case in ALL_CASES if not case.adaptive]


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.size = 0.25, 3

    def forward(self, x: Tensor, rois: Tensor) -> Tensor:
        return roipool.roi_align(x, rois, self.size, self.scale, 2)


# Functions of maps, boxes and a number, which changes from call to call.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scale": (lambda x, r, n: roipool.roi_align(x, r, 3, n), (0.25, 0.5, 0.125)),
    "size": (lambda x, r, n: roipool.roi_align(x, r, n, 0.25), (3, 5, 2)),
    "sampling": (lambda x, r, n: roipool.roi_align(x, r, 3, 0.25, n), (2, 3, 1)),
    "stride": (lambda x, r, n: roipool.roi_align(x, r, 3, 1 / n), (4, 8, 2)),
    "of shapes": (lambda x, r, n: roipool.roi_align(x, r, 3, x.shape[2] / n), (80, 40, 160)),
    "maximum": (lambda x, r, n: roipool.roi_align(x, r, 3, n, 2, mode="max"), (0.25, 0.5, 0.125)),
    "roi_pool": (lambda x, r, n: roipool.roi_pool(x, r, n, 0.25), (3, 5, 2)),
    "pyramid": (
        lambda x, r, n: roipool.multilevel_roi_align([x, x[:, :, ::2, ::2]], r, 3, [n, n / 2]),
        (0.25, 0.5, 0.125),
    ),
    "filling": (
        lambda x, r, n: roipool.crop_and_resize(
            x, r[:, 1:] / 30, r[:, 0].long(), 3, extrapolation_value=n
        ),
        (0.25, 0.5, -1.5),
    ),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_that_change(name: str, dynamic: bool | None) -> None:
    function, numbers = PROGRAMS[name]
    torch._dynamo.reset()
    program = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for number in numbers:
        leaf, other = X.clone().requires_grad_(), X.clone().requires_grad_()
        found, expected = program(leaf, ROIS, number), function(other, ROIS, number)
        assert torch.equal(found, expected)
        found.sum().backward()
        expected.sum().backward()
        assert torch.equal(leaf.grad, other.grad)


@pytest.mark.parametrize("case", FIXED, ids=str)
def test_a_program_for_any_size(case: TensorCase) -> None:
    """Bins, boxes and cells need at most two compilations; another scale needs another one."""
    chosen = case.options()
    levels, is_deep = isinstance(case, PyramidTensorCase), isinstance(case, VolumeTensorCase)
    placed = "spatial_scales" if levels else "spatial_scale"

    def program(x: Tensor, boxes: Tensor, indices: Tensor, size: int, scale: float) -> Tensor:
        options = {**chosen}
        if placed in options:
            options[placed] = [scale, scale / 2] if levels else scale
        arguments = {case.op.boxes: boxes, case.op.indices: indices}
        arguments[case.op.size] = (2, size, size + 1) if is_deep else (size, size + 1)
        given: Any = [x, x[:, :, ::2, ::2] * 2] if levels else x
        if is_deep:
            given = in_planes(x, 2, "NCHW")
        if levels:
            options["levels"] = torch.arange(boxes.shape[0]) % 2
        options |= case.per_bin(boxes, (size, size + 1))
        pooled: Tensor = getattr(roipool, case.op.forward)(given, **arguments, **options)
        return pooled

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(program, backend=counter, fullgraph=True, dynamic=True)
    program(maps(), case.boxes(), case.indices(), 2, 0.9)  # types of arrays are known since
    # No two numbers of the first call are equal: a compiler takes such for one.
    for size, scale, count in ((4, 0.9, 8), (2, 0.9, 7), (3, 0.9, 6), (5, 0.9, 9), (5, 0.7, 9)):
        features = maps(shape=(2, 3, 6, size + 5))
        leaves = [features.clone().requires_grad_() for _ in range(2)]
        regions = case.boxes(count), case.indices(count)
        values = [
            function(leaf, *regions, size, scale)
            for function, leaf in zip((compiled, program), leaves, strict=True)
        ]
        for value in values:
            value.square().sum().backward()
        assert torch.equal(*values)
        assert torch.equal(leaves[0].grad, leaves[1].grad)
        if not levels:  # for a pyramid each number of bins is compiled anew
            assert counter.frame_count <= (2 if scale == 0.9 else 3)


# ---- torch.fx


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_operations_in_a_recorded_forward(case: TensorCase) -> None:
    boxes, indices = case.boxes(), case.indices()
    levels = {"levels": torch.arange(5) % 2} if case.op.forward.startswith("multilevel") else {}
    offsets = case.per_bin(boxes)

    class Pool(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
            given = [x, x[:, :, ::2, ::2] * 2] if levels else x
            arguments = {case.op.boxes: boxes, case.op.indices: indices, case.op.size: (2, 3)}
            if case.op.is_of_volumes:
                given, arguments[case.op.size] = x.unflatten(2, (2, -1)), (2, 1, 3)
            pooled: Tensor = getattr(roipool, case.op.forward)(
                given, **arguments, **case.options(), **levels, **offsets
            )
            return pooled.flatten(2, 3) if case.op.is_of_volumes else pooled

    graph = torch.fx.symbolic_trace(Pool())
    assert torch.equal(graph(maps(), boxes, indices), case.pool(maps(), boxes, indices))


def test_a_graph_is_code_that_runs_and_can_be_copied() -> None:
    graph = torch.fx.symbolic_trace(Model())
    assert "roipool" in graph.code
    assert torch.equal(copy.deepcopy(graph)(X, ROIS), Model()(X, ROIS))


# ---- Profilers


@pytest.mark.parametrize("way", ["by addresses", "no gradient", "gradient", "vmap"])
def test_every_way_has_events(way: str) -> None:
    from torch.profiler import ProfilerActivity, profile

    features = X.clone().requires_grad_(way == "gradient")
    rois = ROIS.double() if way == "no gradient" else ROIS
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as found:
        if way == "vmap":
            torch.vmap(lambda x: roipool.roi_align(x, rois, 3, 0.25))(torch.stack([X, X]))
        else:
            pooled = roipool.roi_align(features, rois, 3, 0.25)
            roipool.roi_pool(features, rois, 3, 0.25)
        if way == "gradient":
            pooled.sum().backward()
    events = {event.key for event in found.key_averages()}
    assert "roipool::roi_align" in events
    if way != "vmap":
        assert "roipool::roi_pool" in events
    if way == "gradient":
        assert "roipool::roi_align_backward" in events
