"""The way of CUDA tensors on a real GPU: numbers, bits, streams, graphs, memory, compilation.

`test_torch_cuda.py` shows the rest on the emulator. Without a device these tests fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from _support.tensors import ALL_CASES, DTYPES, FORMATS, TensorCase, maps
from torch import Tensor

import roipool.torch
from roipool import roi_align

# A first run on a device is to show results, not the warnings of other packages.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

DEVICE = "cuda"
TOLERANCES = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 2e-5,
    torch.float64: 1e-12,
}
CHANNELS, HEIGHT, WIDTH = 64, 100, 168
# Multiple of the memory of the result and the gradient of the features.
MOST_MEMORY = 3

every_case = pytest.mark.parametrize("case", ALL_CASES, ids=str)


def proposals(count: int = 200) -> Tensor:
    """Return boxes on two images of 800 x 1344 pixels."""
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(count, 2, generator=generator) * torch.tensor([1100.0, 600.0])
    side = torch.rand(count, 2, generator=generator) * 300 + 8
    return torch.cat([(torch.arange(count) % 2)[:, None], corner, corner + side], 1).to(DEVICE)


def features_of_images(dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(2, CHANNELS, HEIGHT, WIDTH, generator=generator)
    return values.to(DEVICE, dtype)


def pooled_and_gradient(features: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    leaf = features.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    pooled = roi_align(leaf, rois, 7, 0.125, 2)
    (gradient,) = torch.autograd.grad(pooled.square().sum(), leaf)
    return pooled.detach(), gradient


# ---- Numbers


def results(case: TensorCase, features: Tensor, device: str) -> list[Tensor]:
    """Return pooled values, and the gradients of their sum, on the host."""
    moved = features.to(device).requires_grad_()
    boxes, indices = case.boxes(dtype=torch.float32).to(device), case.indices().to(device)
    inputs = [moved, boxes.requires_grad_()] if case.moves else [moved]
    pooled = case.pool(moved, boxes, indices)
    values = pooled[0] if isinstance(pooled, tuple) else pooled
    gradients = torch.autograd.grad(values.sum(), inputs)
    return [each.detach().cpu() for each in (values, *gradients)]


@every_case
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
def test_results_are_those_of_the_cpu(
    case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    features = maps(dtype, memory_format)
    on_gpu, on_cpu = (results(case, features, device) for device in (DEVICE, "cpu"))
    for got, expected in zip(on_gpu, on_cpu, strict=True):
        tolerance = TOLERANCES[got.dtype]
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance * 8)


@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_results_are_those_of_torchvision(
    dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    ops = pytest.importorskip("torchvision.ops")
    features, rois = features_of_images(dtype), proposals()
    pooled, gradient = pooled_and_gradient(features.contiguous(memory_format=memory_format), rois)
    leaf = features.requires_grad_()
    expected = ops.roi_align(leaf, rois.to(dtype), 7, 0.125, 2, True)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), leaf)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(pooled, expected.detach(), rtol=tolerance, atol=tolerance * 8)
    # torchvision adds in any order.
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=tolerance * 100)


# ---- Determinism


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Use torch's deterministic mode."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def many_boxes_of_one_place() -> Tensor:
    """Return boxes that all read the same cells, so that any other order of sums shows."""
    generator = torch.Generator().manual_seed(2)
    sides = 40 + 8 * torch.rand(2000, 2, generator=generator)
    corner = torch.full((2000, 2), 100.0)
    return torch.cat([torch.zeros(2000, 1), corner, corner + sides], 1).to(DEVICE)


@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_the_deterministic_mode_keeps_the_bits(
    dtype: torch.dtype, memory_format: torch.memory_format, request: pytest.FixtureRequest
) -> None:
    features = features_of_images(dtype).contiguous(memory_format=memory_format)
    rois = many_boxes_of_one_place()
    expected = pooled_and_gradient(features, rois)
    request.getfixturevalue("deterministic")
    for _ in range(5):
        for got, wanted in zip(pooled_and_gradient(features, rois), expected, strict=True):
            assert torch.equal(got, wanted)


@pytest.mark.usefixtures("deterministic")
def test_results_are_those_of_torchvisions_deterministic_mode() -> None:
    """torchvision then compiles a program, whose gradient has a fixed order, too.

    Beyond the map it reads the cells of the border, where its operator has zeros: boxes end within.
    """
    ops = pytest.importorskip("torchvision.ops")
    features, rois = features_of_images(), proposals(50)
    rois[:, 1:].clamp_(max=8 * torch.tensor(2 * [WIDTH - 1, HEIGHT - 1], device=DEVICE))
    pooled, gradient = pooled_and_gradient(features, rois)
    leaf = features.requires_grad_()
    expected = ops.roi_align(leaf, rois, 7, 0.125, 2, True)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), leaf)
    torch.testing.assert_close(pooled, expected.detach(), rtol=2e-5, atol=2e-4)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=2e-3)


# ---- Streams, graphs, memory, devices


def test_the_bits_are_the_same_on_every_stream_and_each_time() -> None:
    features, rois = features_of_images(), proposals()
    expected = pooled_and_gradient(features, rois)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    several = []
    for stream in streams * 4:
        with torch.cuda.stream(stream):
            several.append(pooled_and_gradient(features, rois))
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    for pooled, gradient in several:
        assert torch.equal(pooled, expected[0])
        assert torch.equal(gradient, expected[1])


def test_a_graph_keeps_its_memory() -> None:
    features, rois = features_of_images().requires_grad_(), proposals()

    def call() -> tuple[Tensor, Tensor]:
        pooled = roi_align(features, rois, 7, 0.125, 2)
        (gradient,) = torch.autograd.grad(pooled.square().sum(), features)
        return pooled, gradient

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()  # compiles
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    others = [torch.full((1 << 20,), torch.nan, device=DEVICE) for _ in range(64)]
    features.data.mul_(2)
    graph.replay()
    for got, expected in zip(captured, call(), strict=True):
        assert torch.equal(got, expected)
    del others


def test_memory_is_that_of_torchs_allocator() -> None:
    features, rois = features_of_images(), proposals()
    pooled, gradient = pooled_and_gradient(features, rois)  # compiles
    needed = sum(each.numel() * each.element_size() for each in (features, pooled, gradient))
    del pooled, gradient
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    pooled, gradient = pooled_and_gradient(features, rois)
    held = torch.cuda.memory_allocated() - before
    assert held >= sum(each.numel() * each.element_size() for each in (pooled, gradient))
    assert torch.cuda.max_memory_allocated() - before <= MOST_MEMORY * needed
    del pooled, gradient
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two devices")
def test_tensors_of_another_device_than_the_current_one() -> None:
    features, rois = features_of_images(), proposals()
    expected = pooled_and_gradient(features, rois)
    on_second = pooled_and_gradient(features.to("cuda:1"), rois.to("cuda:1"))
    for got, wanted in zip(on_second, expected, strict=True):
        assert got.device == torch.device("cuda:1")
        assert torch.equal(got.to(DEVICE), wanted)


# ---- Compilation, precision


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_programs_compute_the_same(mode: str) -> None:
    features, rois = features_of_images(), proposals()

    def program(maps: Tensor, boxes: Tensor) -> Tensor:
        return roi_align(maps * 2, boxes, 7, 0.125, 2) + 1

    compiled: Any = torch.compile(program, mode=mode)
    expected = program(features, rois)
    for _ in range(3):
        assert torch.equal(compiled(features, rois).clone(), expected)


def test_autocast_computes_in_the_type_of_the_features() -> None:
    features, rois = features_of_images(), proposals()
    with torch.autocast(DEVICE, torch.float16):
        pooled = roi_align(features.half(), rois, 7, 0.125, 2)
    assert pooled.dtype is torch.float16
    torch.testing.assert_close(
        pooled.float(), roi_align(features, rois, 7, 0.125, 2), rtol=2e-3, atol=2e-2
    )


def test_torchvisions_operators_are_replaced() -> None:
    ops = pytest.importorskip("torchvision.ops")
    features, rois = features_of_images(), proposals()
    expected = ops.roi_align(features, rois, 7, 0.125, 2, True)
    with roipool.torch.override_torchvision():
        got = ops.roi_align(features, rois, 7, 0.125, 2, True)
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-4)
