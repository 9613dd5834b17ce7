"""ONNX exports, whose results in ONNX Runtime agree."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from _support.loops import each
from _support.run_python import run_python
from torch import Tensor
from torch.export import Dim

import roipool
import roipool.torch.nn
from roipool.compat import torchvision

pytest.importorskip("onnxscript", reason="onnxscript is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

# The exporter's own, on this Python.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Head(torch.nn.Module):
    """A layer and a pooling."""

    def __init__(self, operation: str, options: dict[str, Any], with_indices: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.operation, self.options, self.with_indices = operation, options, with_indices

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        pool = getattr(roipool, self.operation)
        boxes, indices = (rois[:, 1:], rois[:, 0]) if self.with_indices else (rois, None)
        options = {"spatial_scale": 0.5, **self.options}
        return pool(self.layer(features), boxes, (3, 5), batch_indices=indices, **options)


def boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand(count, 2, generator=generator) * 20
    size = torch.rand(count, 2, generator=generator) * 20 + 1
    return torch.cat([(torch.arange(count) % 2)[:, None], first, first + size], 1)


def export(head: torch.nn.Module, inputs: tuple[Any, ...], lists: int = 1) -> Any:
    """Export a program whose last inputs are lists of boxes of any length."""
    counts = [{0: Dim(f"count{number}", min=0, max=100000)} for number in range(lists)]
    return torch.onnx.export(
        head.eval(),
        inputs,
        dynamo=True,
        opset_version=18,
        verbose=False,
        dynamic_shapes=(*[None] * (len(inputs) - lists), *counts),
        custom_translation_table=roipool.torch.onnx_translations(),
    )


def computed(program: Any, path: Path, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return ONNX Runtime's result."""
    program.save(path)
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_inputs()]
    (got,) = session.run(None, dict(zip(names, [one.numpy() for one in inputs], strict=True)))
    return torch.from_numpy(got)


CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "align, fixed": ("roi_align", {"sampling_ratio": 2}, "RoiAlign"),
    "align, adaptive, not aligned": ("roi_align", {"aligned": False}, "RoiAlign"),
    "align, two scales": (
        "roi_align",
        {"sampling_ratio": 2, "spatial_scale": (0.4, 0.6)},
        "RoiAlign",
    ),
    "pool": ("roi_pool", {}, "MaxRoiPool"),
}


@pytest.mark.parametrize("name", CASES)
@each(
    lambda name, with_indices, **_: not with_indices or "adaptive" not in name,
    with_indices=(False, True),
)
def test_answers_of_onnx_runtime(name: str, with_indices: bool, tmp_path: Path) -> None:
    operation, options, node = CASES[name]
    torch.manual_seed(0)
    head, features = Head(operation, options, with_indices), torch.randn(2, 3, 20, 24)
    program = export(head, (features, boxes(5, 0)))
    assert node in [each.op_type for each in program.model.graph]
    rois = boxes(11, 1)
    got = computed(program, tmp_path / f"{with_indices}.onnx", (features, rois))
    torch.testing.assert_close(got, head(features, rois), atol=1e-5, rtol=1e-5)


class PyramidHead(torch.nn.Module):
    """A pooling of two maps, and boxes of two images."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = roipool.torch.nn.MultiScaleRoIAlign(["fine", "coarse"], (3, 5), 2)

    def forward(self, fine: Tensor, coarse: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return self.pool({"fine": fine, "coarse": coarse}, [first, second], [(64, 64)] * 2)


def test_pyramids(tmp_path: Path) -> None:
    """Boxes of both maps; and a map, an image, or all of them without boxes."""
    torch.manual_seed(0)
    maps = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 8, 8)
    large, small = boxes(7, 0)[:, 1:] * 20, boxes(4, 1)[:, 1:]
    mixed = torch.cat([small[:2], large[:2], small[2:]])
    head = PyramidHead()
    program = export(head, (*maps, mixed, small), lists=2)
    assert [one.op_type for one in program.model.graph].count("RoiAlign") == 2
    for lists in ((mixed, large), (small, small), (large, large[:0]), (small[:0], small[:0])):
        inputs = (*maps, *lists)
        got = computed(program, tmp_path / "pyramid.onnx", inputs)
        torch.testing.assert_close(got, head(*inputs), atol=1e-5, rtol=1e-5)


# The options of torchvision's functions.
TORCHVISION: dict[str, dict[str, Any]] = {
    "roi_pool": {"spatial_scale": 0.5},
    "roi_align": {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True},
}


@pytest.mark.parametrize("name", TORCHVISION)
@each(overridden=(False, True))
def test_torchvisions_functions(name: str, overridden: bool, tmp_path: Path) -> None:
    """Its roi_pool needs roipool's translation table, its roi_align has torch's."""
    ops = pytest.importorskip("torchvision", reason="torchvision is not installed").ops

    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, features: Tensor, rois: Tensor) -> Tensor:
            return getattr(ops, name)(self.layer(features), rois, (3, 5), **TORCHVISION[name])

    torch.manual_seed(0)
    head, features, rois = Theirs(), torch.randn(2, 3, 20, 24), boxes(11, 1)
    context = roipool.torch.override_torchvision() if overridden else nullcontext()
    with context:
        program = export(head, (features, boxes(5, 0)))
        expected = head(features, rois)
    nodes = [one.op_type for one in program.model.graph]
    assert {"roi_pool": "MaxRoiPool", "roi_align": "RoiAlign"}[name] in nodes
    got = computed(program, tmp_path / f"{overridden}.onnx", (features, rois))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_the_table_without_torchvision() -> None:
    """It imports nothing else."""
    done = run_python(
        """
        import sys, roipool.torch
        table = roipool.torch.onnx_translations()
        assert len(table) == 4
        assert "torchvision" not in sys.modules
        """
    )
    assert done.returncode == 0, done.stderr


# Operations that ONNX lacks, and what an error calls them.
WITHOUT_NODES: dict[str, tuple[str, dict[str, Any]]] = {
    "precise_roi_pool": ("precise_roi_pool", {}),
    "maximum of roi_align": ("roi_align", {"mode": "max"}),
}


@pytest.mark.parametrize("named", WITHOUT_NODES)
def test_operations_without_a_node_are_named(named: str) -> None:
    operation, options = WITHOUT_NODES[named]
    with pytest.raises(Exception, match=f"ONNX has no node for .*{named}"):
        export(Head(operation, options, False), (torch.randn(2, 3, 20, 24), boxes(5, 0)))


def test_functions_of_frameworks(tmp_path: Path) -> None:
    """Their batch indices are cut to whole numbers."""

    class Theirs(torch.nn.Module):
        def forward(self, features: Tensor, rois: Tensor) -> Tensor:
            return torchvision.roi_align(features, rois, 3, 0.5, 2)

    features, rois = torch.randn(2, 3, 20, 24), boxes(11, 1)
    program = export(Theirs(), (features, boxes(5, 0)))
    got = computed(program, tmp_path / "theirs.onnx", (features, rois))
    torch.testing.assert_close(got, Theirs()(features, rois), atol=1e-5, rtol=1e-5)


def test_two_sampling_ratios_are_refused() -> None:
    head = Head("roi_align", {"sampling_ratio": (2, 3)}, False)
    with pytest.raises(Exception, match="one sampling_ratio for both axes"):
        export(head, (torch.randn(2, 3, 20, 24), boxes(5, 0)))
